// A list of values in a SwiftUI view. Everything that it does is `RecordStore.live`: this holds the answer as long as the view
// has its place in the screen. Where there is no SwiftUI, `Tests/SwiftUI` has the few declarations that this needs, so that it is
// compiled and tested; it was never run on a Mac.

#if canImport(SwiftUI)
  public import Foundation
  public import Strandline
  public import SwiftUI

  /// The values of a type in a view, kept up to date.
  ///
  /// ```swift
  /// struct NoteList: View {
  ///   @Fetch(where: #Predicate<Note> { $0.stars > 3 }, sortedBy: .descending(\.made)) private var notes
  ///   var body: some View {
  ///     List(notes) { Text($0.title) }
  ///   }
  /// }
  ///
  /// NoteList().environment(\.recordStore, store)
  /// ```
  ///
  /// The store is that of the environment; without one there are no values. A view whose conditions change with its own
  /// properties gets another identity with them: `.id(searchText)`.
  @MainActor @propertyWrapper
  public struct Fetch<Value: SyncRecord>: DynamicProperty {
    @Environment(\.recordStore) private var store
    @State private var holder = FetchHolder<Value>()
    private let begin: @MainActor (RecordStore) -> Live<TypedValues<Value>>

    /// Asks for the values that meet all conditions, as `RecordStore.fetch` does.
    public init(
      where conditions: Predicate<Value>..., sortedBy orders: ValueOrder<Value>..., limit: Int? = nil,
      fileID: String = #fileID, line: Int = #line
    ) {
      begin = { store in
        store.live(Value.self, conditions: conditions, orders: orders, limit: limit, fileID: fileID, line: line)
      }
    }

    /// The values; none before the first answer.
    public var wrappedValue: TypedValues<Value> { holder.live?.value ?? TypedValues() }

    /// What keeps them up to date, with the error that has ended it; nil without a store.
    public var projectedValue: Live<TypedValues<Value>>? { holder.live }

    /// Begins with the store of the environment. SwiftUI calls it.
    public func update() { holder.follow(store, begin) }
  }

  /// Keeps the answer through the views that SwiftUI makes for one place in the screen.
  @MainActor
  private final class FetchHolder<Value: SyncRecord> {
    private(set) var live: Live<TypedValues<Value>>?
    private weak var store: RecordStore?

    nonisolated init() {}

    func follow(_ store: RecordStore?, _ begin: (RecordStore) -> Live<TypedValues<Value>>) {
      guard store !== self.store || (live == nil) != (store == nil) else { return }
      self.store = store
      live = store.map(begin)
    }
  }

  extension EnvironmentValues {
    /// The store of the views below; nil if none was set.
    public var recordStore: RecordStore? {
      get { self[RecordStoreKey.self] }
      set { self[RecordStoreKey.self] = newValue }
    }
  }

  private struct RecordStoreKey: EnvironmentKey {
    static var defaultValue: RecordStore? { nil }
  }
#endif
