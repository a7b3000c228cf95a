// The codes that no server sends: the store's own, of holds, halts and outcomes.

extension CloudError.Code {
  /// A fetched version cannot be read.
  public static let damaged = CloudError.Code(rawValue: "DAMAGED")
  /// A later version of the app wrote the record (`NewerVersionRule.reject`).
  public static let newerSchema = CloudError.Code(rawValue: "NEWER_SCHEMA")
  /// A fetched record is not shown until its parent has arrived.
  public static let parentMissing = CloudError.Code(rawValue: "PARENT_MISSING")
  /// The zone is lost.
  public static let zoneLost = CloudError.Code(rawValue: "zoneLost")
  /// The server has the record under another type.
  public static let typeMismatch = CloudError.Code(rawValue: "typeMismatch")
}
