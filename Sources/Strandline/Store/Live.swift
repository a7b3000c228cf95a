// The newest answer of a store for a view: an observation that a task on the main actor reads as long as somebody holds the
// object. It works wherever Swift's Observation does: SwiftUI redraws what reads `value`.

public import Foundation
public import Observation
import StrandlineSystem

/// The newest answer to one question, kept up to date on the main actor.
///
/// ```swift
/// struct NoteList: View {
///   @State private var notes: Live<TypedValues<Note>>
///   init(store: RecordStore) {
///     _notes = State(initialValue: store.live(Note.self, sortedBy: .descending(\.made)))
///   }
///   var body: some View {
///     List(notes.value ?? []) { Text($0.title) }
///   }
/// }
/// ```
///
/// Changes that come faster than the main actor takes them are one, the last is never left out, and an older answer never
/// follows a newer one. It ends with its owner, and with the store.
@MainActor @Observable
public final class Live<Element: Sendable> {
  /// The newest answer; nil until the first was read. After an error it is the last one before.
  public private(set) var value: Element?
  /// What ended it; nil while it goes on, and after the store was closed.
  public private(set) var error: StrandlineError?
  /// Whether it goes on.
  public private(set) var isLive = true
  @ObservationIgnored private var reading: Reading?

  /// - Parameter executor: where it reads the answers; nil for Swift's pool.
  init<Answers: AsyncSequence & Sendable>(
    _ answers: Answers, on executor: (any TaskExecutor)?
  ) where Answers.Element == Element {
    reading = Reading(
      Task(executorPreference: executor) { [weak self] in
        await Self.read(answers) {
          self?.show($0) != nil
        } end: {
          self?.end($0)
        }
      })
  }

  /// Reads on the executor, and hands each answer to the main actor before it looks for the next one.
  nonisolated private static func read<Answers: AsyncSequence & Sendable>(
    _ answers: Answers, show: @MainActor (Element) -> Bool, end: @MainActor (StrandlineError?) -> Void
  ) async where Answers.Element == Element {
    do {
      for try await answer in answers { guard await show(answer) else { return } }
      await end(nil)
    } catch {
      await end(error as? StrandlineError ?? StrandlineError(.misuse, "\(error)", underlying: error))
    }
  }

  private func show(_ answer: Element) { value = answer }
  private func end(_ error: StrandlineError?) { (self.error, isLive) = (error, false) }

  /// The task that reads; it ends with the object.
  private final class Reading: Sendable {
    private let task: Task<Void, Never>
    init(_ task: Task<Void, Never>) { self.task = task }
    deinit { task.cancel() }
  }
}

extension RecordStore {
  /// The values that meet all conditions, kept up to date: ``observe(_:where:sortedBy:limit:fileID:line:)`` for a view.
  @MainActor
  public func live<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>...,
    limit: Int? = nil, fileID: String = #fileID, line: Int = #line
  ) -> Live<TypedValues<Value>> {
    live(type, conditions: conditions, orders: orders, limit: limit, fileID: fileID, line: line)
  }

  /// The same for a view's property.
  @MainActor
  package func live<Value: SyncRecord>(
    _ type: Value.Type, conditions: [Predicate<Value>], orders: [ValueOrder<Value>], limit: Int?, fileID: String,
    line: Int
  ) -> Live<TypedValues<Value>> {
    Live(
      TypedQuestion(conditions, by: orders, limit: limit, fileID, line).observation(of: self),
      on: environment.taskExecutor)
  }

  /// One value, kept up to date: ``observe(_:id:)`` for a view.
  @MainActor
  public func live<Value: SyncRecord>(
    _ type: Value.Type, id: Value.ID
  ) -> Live<Value?> { Live(observe(type, id: id), on: environment.taskExecutor) }

  /// How many values meet all conditions, kept up to date: ``observeCount(_:where:)`` for a view.
  @MainActor
  public func liveCount<Value: SyncRecord>(
    _ type: Value.Type, where conditions: Predicate<Value>...
  ) -> Live<Int> {
    Live(TypedQuestion(conditions, "", 0).countObservation(of: self), on: environment.taskExecutor)
  }
}
