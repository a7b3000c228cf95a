// A stand-in for Apple's module of this name, for the tests of StrandlineUI on systems without it: the declarations that
// StrandlineUI uses, as https://developer.apple.com/documentation/swiftui has them, and nothing that draws.

/// A stored property of a view that is read anew before each drawing.
@MainActor @preconcurrency
public protocol DynamicProperty {
  /// Called before each drawing.
  mutating func update()
}

extension DynamicProperty {
  /// Does nothing.
  public mutating func update() {}
}

/// A value that outlives the view.
@propertyWrapper
public struct State<Value>: DynamicProperty {
  private final class Box {
    var value: Value
    init(_ value: Value) { self.value = value }
  }
  private let box: Box

  /// Begins with a value.
  public init(wrappedValue: Value) { box = Box(wrappedValue) }

  /// The value.
  public var wrappedValue: Value {
    get { box.value }
    nonmutating set { box.value = newValue }
  }
}

/// The key of a value of the environment.
public protocol EnvironmentKey {
  /// Its values.
  associatedtype Value
  /// Where none was set.
  static var defaultValue: Value { get }
}

/// What a view has from those above it.
public struct EnvironmentValues {
  /// Of the view that a test draws.
  @MainActor public static var current = EnvironmentValues()
  private var values: [ObjectIdentifier: Any] = [:]

  /// Nothing is set.
  public init() {}

  /// The value of a key.
  public subscript<Key: EnvironmentKey>(key: Key.Type) -> Key.Value {
    get { values[ObjectIdentifier(key)] as? Key.Value ?? Key.defaultValue }
    set { values[ObjectIdentifier(key)] = newValue }
  }
}

/// A value of the environment.
@MainActor @propertyWrapper
public struct Environment<Value>: DynamicProperty {
  private let path: KeyPath<EnvironmentValues, Value>

  /// Names the value.
  public init(_ path: KeyPath<EnvironmentValues, Value>) { self.path = path }

  /// The value.
  public var wrappedValue: Value { EnvironmentValues.current[keyPath: path] }
}
