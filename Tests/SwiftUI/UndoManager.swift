// A stand-in for the class of Apple's Foundation, for the tests of StrandlineUI on systems whose Foundation has none:
// https://developer.apple.com/documentation/foundation/undomanager.

/// What a user can undo, and redo.
@MainActor
public final class UndoManager {
  private var (undos, redos): ([() -> Void], [() -> Void]) = ([], [])
  /// Whether `undo()` is under way: a step that is registered then can be redone.
  private var isUndoing = false
  private var isRedoing = false

  /// Nothing can be undone.
  public init() {}

  /// Whether something can be undone.
  public var canUndo: Bool { !undos.isEmpty }
  /// Whether something can be redone.
  public var canRedo: Bool { !redos.isEmpty }

  /// Registers what undoes something. The target is not kept.
  public func registerUndo<Target: AnyObject>(
    withTarget target: Target, handler: @escaping @MainActor (Target) -> Void
  ) {
    let action = { [unowned target] in handler(target) }
    if isUndoing { return redos.append(action) }
    if !isRedoing { redos = [] }
    undos.append(action)
  }

  /// Undoes what was registered last.
  public func undo() {
    isUndoing = true
    undos.popLast()?()
    isUndoing = false
  }

  /// Redoes what was undone last.
  public func redo() {
    isRedoing = true
    redos.popLast()?()
    isRedoing = false
  }
}
