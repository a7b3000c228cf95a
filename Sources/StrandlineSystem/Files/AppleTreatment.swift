// How Apple systems are told what to do with a store's files: the class of data protection, and that a backup of the device
// leaves them out.
//
// Both are kept by the file system beside a file, and both calls take a descriptor, so that they reach what was opened. A volume
// without them, as a Mac's has no protection classes, refuses with an errno that says so, and is left as it is.

#if canImport(Darwin)
  internal import Darwin

  /// The calls of Apple systems.
  enum AppleTreatment {
    /// The number of a class, as `<sys/content_protection.h>` has them; nil: none is set.
    static func protectionClass(_ protection: FileTreatment.Protection) -> Int32? {
      switch protection {
      case .whileUnlocked: 1
      case .untilFirstUnlock: 3
      case .inherited: nil
      }
    }

    /// Whether a file or folder has another class, and can have this one.
    static func lacks(_ wanted: Int32, _ descriptor: Int32, subject: String) throws(SystemError) -> Bool {
      let current = fcntl(descriptor, F_GETPROTECTIONCLASS)
      if current >= 0 { return current != wanted }
      let code = errno
      if isUnsupported(code) { return false }
      throw SystemError(call: "F_GETPROTECTIONCLASS", subject: subject, errno: code)
    }

    static func protect(_ wanted: Int32, _ descriptor: Int32, subject: String) throws(SystemError) {
      if fcntl(descriptor, F_SETPROTECTIONCLASS, wanted) != -1 { return }
      let code = errno
      if !isUnsupported(code) { throw SystemError(call: "F_SETPROTECTIONCLASS", subject: subject, errno: code) }
    }

    /// The attribute that `URLResourceValues.isExcludedFromBackup` sets.
    private static let backupAttribute = "com.apple.metadata:com_apple_backup_excludeItem"
    /// The text "com.apple.backupd" as a property list: header, the text, the place of the text, and the trailer.
    private static let backupValue: [UInt8] =
      Array("bplist00".utf8) + [0x5F, 0x10, 0x11] + Array("com.apple.backupd".utf8) + [0x08]
      + [0, 0, 0, 0, 0, 0, 1, 1] + [0, 0, 0, 0, 0, 0, 0, 1] + [0, 0, 0, 0, 0, 0, 0, 0] + [0, 0, 0, 0, 0, 0, 0, 0x1C]

    static func leaveOut(_ isLeftOut: Bool, _ descriptor: Int32, subject: String) throws(SystemError) {
      let result =
        isLeftOut
        ? unsafe backupValue.withUnsafeBytes { bytes in
          unsafe fsetxattr(descriptor, backupAttribute, bytes.baseAddress, bytes.count, 0, 0)
        } : unsafe fremovexattr(descriptor, backupAttribute, 0)
      guard result != 0 else { return }
      let code = errno
      if isUnsupported(code) || (!isLeftOut && code == ENOATTR) { return }
      throw SystemError(call: isLeftOut ? "fsetxattr" : "fremovexattr", subject: subject, errno: code)
    }

    private static func isUnsupported(_ code: Int32) -> Bool {
      code == ENOTSUP || code == EOPNOTSUPP || code == EINVAL || code == ENOTTY
    }
  }
#endif
