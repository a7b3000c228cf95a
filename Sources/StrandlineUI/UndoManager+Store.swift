// An app's undo and redo take transactions of a store back. Where there is no UndoManager, `Tests/SwiftUI` has the few
// declarations that this needs, so that it is compiled and tested; it was never run on a Mac.

#if canImport(SwiftUI)
  public import Strandline
  public import SwiftUI

  extension UndoManager {
    /// Has an app's undo take a transaction back, and its redo do it again: each is `RecordStore.undo(_:)`.
    ///
    /// ```swift
    /// let receipt = try await store.write { try $0.delete(Folder.self, id: id) }
    /// undoManager?.registerUndo(of: receipt, in: store)
    /// ```
    ///
    /// - Parameters:
    ///   - receipt: the transaction.
    ///   - store: its store.
    ///   - whenDone: called after each undo and redo with what was not taken back, or with the error: what was written stays
    ///     then.
    @MainActor
    public func registerUndo(
      of receipt: Receipt, in store: RecordStore,
      whenDone: @escaping @MainActor (Result<Undone, any Error>) -> Void = { _ in }
    ) { StoreUndo(store, whenDone).register(with: self) { receipt } }
  }

  /// Takes transactions back for an undo manager.
  @MainActor
  private final class StoreUndo {
    private let store: RecordStore
    private let whenDone: @MainActor (Result<Undone, any Error>) -> Void

    init(_ store: RecordStore, _ whenDone: @escaping @MainActor (Result<Undone, any Error>) -> Void) {
      (self.store, self.whenDone) = (store, whenDone)
    }

    /// - Parameter receipt: the transaction; that of an undo under way is known when it is done.
    func register(with manager: UndoManager, _ receipt: @escaping @MainActor () async throws -> Receipt) {
      // The manager does not keep its target, and keeps the closure.
      manager.registerUndo(withTarget: self) { [self, weak manager] _ in
        let task = Task { try await undo(receipt()) }
        // At once: a step that is registered while the manager undoes becomes its redo.
        if let manager { register(with: manager) { try await task.value } }
      }
    }

    /// - Returns: the transaction that took the other one back.
    private func undo(_ receipt: Receipt) async throws -> Receipt {
      do {
        let undone = try await store.undo(receipt)
        whenDone(.success(undone))
        return undone.receipt
      } catch {
        whenDone(.failure(error))
        throw error
      }
    }
  }
#endif
