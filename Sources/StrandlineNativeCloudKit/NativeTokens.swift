// Change tokens as text, with their kind: one of the web is of no use here, and one from here is of no use on the web.

#if canImport(CloudKit)
  package import CloudKit
  internal import Foundation
  package import Strandline
  internal import StrandlineCloudKit

  extension ChangeToken {
    /// A token of the framework, archived.
    init(_ token: CKServerChangeToken) throws {
      let data = try NSKeyedArchiver.archivedData(withRootObject: token, requiringSecureCoding: true)
      self.init(rawValue: Self.nativePrefix + data.base64EncodedString())
    }

    /// The framework's token. Nil for one of the web, and for one that this version of the framework cannot read.
    package var native: CKServerChangeToken? {
      guard isNative, let data = Data(base64Encoded: String(rawValue.dropFirst(Self.nativePrefix.count))) else {
        return nil
      }
      do { return try NSKeyedUnarchiver.unarchivedObject(ofClass: CKServerChangeToken.self, from: data) } catch {
        return nil
      }
    }
  }
#endif
