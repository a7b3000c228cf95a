// A user who has a store in a folder of accounts, and what an app decides about users.

import StrandlineSystem

/// A store in a folder of accounts, and whose it is.
public struct StoredAccount: Hashable, Sendable {
  /// The number of its folder. No number is given twice.
  public var number: UInt64
  /// The user's record name; nil for the store of before anybody was known.
  public var user: String?
  /// Its folder, for `RecordStore.openReadOnly`, `StoreInbox` and the command.
  public var path: String
  /// Whether it holds nothing but what a removed store had not sent: a store of its own, of the same records, that never syncs.
  /// A change is there as the record that it made, a deletion as a record without fields that is deleted.
  public var isArchive: Bool

  /// Equal to the byte.
  public static func == (left: StoredAccount, right: StoredAccount) -> Bool {
    left.number == right.number && left.user.equalsUTF8(right.user) && left.path.equalsUTF8(right.path)
      && left.isArchive == right.isArchive
  }

  /// Hashes the number.
  public func hash(into hasher: inout Hasher) { hasher.combine(number) }
}

/// What an app decides about the users of its accounts. By default nothing is removed, and what was written before the first sign-in
/// goes to whoever signs in first.
public struct AccountRules: Hashable, Sendable {
  /// What becomes of a user's store when the user signs out.
  public var signOut = SignOutRule.keepsOpen
  /// What becomes of the store of before anybody was known when the first user signs in.
  public var withoutAccount = FirstUserRule.takesOver

  /// The defaults.
  public init() {}
}

/// What becomes of a user's store when the user signs out. In each case it syncs nothing until the user is back.
public enum SignOutRule: Hashable, Sendable, CaseIterable {
  /// It stays open, and can be read and written. What is written is sent when its user is back.
  case keepsOpen
  /// It is closed, and opens when its user is back.
  case closes
  /// It is closed and removed. What it had not sent is first copied into a store of its own
  /// (``StoredAccount/isArchive``).
  case removes
}

/// What becomes of the store of before anybody was known when the first user signs in.
public enum FirstUserRule: Hashable, Sendable, CaseIterable {
  /// It becomes the user's, and what was written in it is uploaded.
  case takesOver
  /// The user gets another store. The one without a user is closed and stays, until the app removes it.
  case beginsEmpty
}

extension StoredAccount: CustomStringConvertible {
  /// Whose it is, and its folder.
  public var description: String {
    "\(isArchive ? "what was not sent" : "store") of \(user.map { "'\($0)'" } ?? "nobody yet") at '\(path)'".oneLine
  }
}

extension AccountRules: CustomStringConvertible {
  /// What the two rules say.
  public var description: String { "at a sign-out the store \(signOut); the first user \(withoutAccount)" }
}
