// Which versions of the server an app does not apply, because a later version of the app wrote them.

extension Schema {
  /// The declaration because of which a version of the server is not applied; nil if it is applied.
  package func refusing(_ server: ServerRecord) -> SchemaVersion? {
    guard let version = self[server.type].version, version.whenNewer != .preserve,
      SchemaVersion.number(server.fields[version.field]) > version.number
    else { return nil }
    return version
  }
}
