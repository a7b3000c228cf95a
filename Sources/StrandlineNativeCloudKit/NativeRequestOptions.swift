// How an app wants CloudKit's framework to make requests.

#if canImport(CloudKit)
  /// How requests are made that go through CloudKit's framework.
  ///
  /// A sync that a person asked for is urgent for the system, any other is not; an app that is in the background gets less of the
  /// network then.
  public struct NativeRequestOptions: Hashable, Sendable, CustomStringConvertible {
    /// The time in which a part of a request must have been answered: 60 s by default, as the framework has it.
    public var requestTimeout: Duration = .seconds(60)
    /// The time that a whole request may take: ten minutes by default. The framework's own is a week, in which nothing else would be
    /// asked.
    public var resourceTimeout: Duration = .seconds(600)
    /// Whether a cellular network may be used: yes by default.
    public var allowsCellularAccess = true
    /// The name under which Apple's console shows the requests: "Strandline" by default.
    public var groupName = "Strandline"

    /// The defaults.
    public init() {}

    /// The times, the network and the name.
    public var description: String {
      "'\(groupName)', \(requestTimeout) a request, \(resourceTimeout) at most"
        + (allowsCellularAccess ? "" : ", no cellular network")
    }
  }
#endif
