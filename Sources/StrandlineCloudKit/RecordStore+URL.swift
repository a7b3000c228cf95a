// Opening a store by a file URL. Here and not beside the store, whose target does not import Foundation.

public import Foundation
public import Strandline

extension RecordStore {
  /// Opens the store in a folder of this machine, as `open(at:types:syncing:options:environment:)` does with a path.
  ///
  /// - Throws: `StrandlineError.notAStore` if the URL is not a file URL, and what the other throws.
  public static func open(
    at folder: URL, types: [any SyncRecord.Type] = [], syncing: SyncConfiguration? = nil,
    durability: Durability = .durable, options: StoreOptions = StoreOptions(), environment: StoreEnvironment = .real,
    fileID: String = #fileID, line: Int = #line
  ) async throws -> RecordStore {
    guard folder.isFileURL else {
      throw StrandlineError(
        .notAStore, "a URL of scheme '\(folder.scheme ?? "")' names no folder of this machine; pass a file URL",
        location: "\(fileID):\(line)")
    }
    return try await open(
      at: folder.path(percentEncoded: false), types: types, syncing: syncing, durability: durability, options: options,
      environment: environment, fileID: fileID, line: line)
  }
}
