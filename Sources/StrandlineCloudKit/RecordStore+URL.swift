// Opening a store by a URL, as apps hold their folders. Here and not beside the store, which knows no Foundation.

public import Foundation
public import Strandline

extension RecordStore {
  /// Opens the store in a folder of this machine; see `open(at:syncing:options:environment:)`, which takes a path.
  ///
  /// - Throws: `StrandlineError.notAStore` if the URL is not a file's, and what the other throws.
  public static func open(
    at folder: URL, syncing: SyncConfiguration? = nil, durability: Durability = .durable,
    options: StoreOptions = StoreOptions(), environment: StoreEnvironment = .real, fileID: String = #fileID,
    line: Int = #line
  ) async throws -> RecordStore {
    guard folder.isFileURL else {
      throw StrandlineError(
        .notAStore, "'\(folder.scheme ?? "")' names no folder of this machine; give a file URL",
        location: "\(fileID):\(line)")
    }
    return try await open(
      at: folder.path(percentEncoded: false), syncing: syncing, durability: durability, options: options,
      environment: environment, fileID: fileID, line: line)
  }
}
