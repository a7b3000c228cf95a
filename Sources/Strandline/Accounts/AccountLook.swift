// What has become of a folder of accounts that this process has open: the rule, and its words.
//
// A lock is a file's, and a drive may give files other numbers when it is mounted again. So the number of the lock does not decide
// alone where it is another one: a list of the same bytes says that every store is still whose it was. The list does not decide alone
// either: a folder that was moved is noticed because nothing is at its path, and a file that was removed because it has no name.

import StrandlineSystem

/// What is at the path of a folder of accounts, compared with what this process holds of it.
package struct AccountLook: Hashable, Sendable {
  package enum Lock: Hashable, Sendable, CaseIterable {
    /// None is there.
    case absent
    /// The one that this process holds.
    case held
    /// One with another number.
    case another
  }

  package enum List: Hashable, Sendable, CaseIterable {
    /// None is there, and this process has found or written one.
    case absent
    /// It has the bytes that this process has found or written. So it is if none is there, and never was.
    case known
    /// It has other bytes.
    case another
  }

  /// Whether the lock that is held has a name anywhere. On a drive that counts no names it has.
  package var isNamed: Bool
  package var lock: Lock
  package var list: List

  package init(isNamed: Bool, lock: Lock, list: List) { (self.isNamed, self.lock, self.list) = (isNamed, lock, list) }

  /// What has taken the folder's place; nil if it is still there.
  package var replacement: AccountReplacement? {
    switch (lock, list, isNamed) {
    case (.held, .known, _): nil
    case (.held, _, _): .overwritten
    // Only numbers differ.
    case (.another, .known, true): nil
    case (_, .known, false), (.absent, .known, true): .unlocked
    case (.absent, .absent, true): .moved
    case (.absent, .absent, false): .removed
    case (_, _, true): .anotherInPlaceOfMoved
    case (_, _, false): .anotherInPlaceOfRemoved
    }
  }
}

/// What has become of a folder of accounts.
package enum AccountReplacement: Hashable, Sendable, CaseIterable {
  /// Nothing is at its path; its files are somewhere else.
  case moved
  /// Its files have no name any more, and nothing is at its path.
  case removed
  /// Another one is at its path; its own files are somewhere else.
  case anotherInPlaceOfMoved
  /// Its files have no name any more, and others are at its path.
  case anotherInPlaceOfRemoved
  /// Its list is missing, or has other bytes.
  case overwritten
  /// Its lock has another name or none, so that another process may come.
  case unlocked

  package func error(_ path: String) -> StrandlineError {
    let words =
      switch self {
      case .moved:
        "the folder of accounts was moved away from '\(path)' while this process has it open: what was acknowledged is whole "
          + "where it is now, and is lost if it was removed since"
      case .removed:
        "the folder of accounts '\(path)' was removed while this process has it open: what was acknowledged is lost with it, but "
          + "for what a backup or a server has"
      case .anotherInPlaceOfMoved:
        "the folder of accounts was moved away from '\(path)' while this process has it open, and another one is there now: what "
          + "was acknowledged is whole where it was moved to"
      case .anotherInPlaceOfRemoved:
        "the files of the folder of accounts '\(path)' were removed while this process has it open, and others are there now: what "
          + "was acknowledged is lost with them, but for what a backup or a server has"
      case .overwritten:
        "the list of the folder of accounts '\(path)' was removed or replaced while this process has it open, so that it does not "
          + "know whose a store is there"
      case .unlocked:
        "the lock of the folder of accounts '\(path)' was removed or replaced while this process has it open, so that another "
          + "process may have it open now"
      }
    return StrandlineError(
      .storeReplaced,
      "\(words); nothing of what is there now was changed; close these accounts, and open what is there", file: path)
  }
}
