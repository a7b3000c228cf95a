// A version of the server that waits for its parent, as the log holds it: see Shelf.swift of the intake.

import StrandlineSystem

extension ParentSchema {
  /// The parent's name in a version of the server.
  package func parentName(_ server: ServerRecord, of id: RecordID) -> String? {
    guard let field else { return parentName(server.parent.map { .reference(Reference($0)) }, of: id) }
    return parentName(server.fields[field], of: id)
  }

  /// The parent's name in a version of this store.
  package func parentName(_ version: Version, of id: RecordID) -> String? {
    parentName(version.fields[field ?? Version.parentField], of: id)
  }
}

/// A version of the server on the shelf, and the name of the parent that it waits for.
package struct ShelvedVersion {
  package let parent: String
  package let server: ServerRecord

  /// The bytes in the log: the parent's name, and a `fetchedSave` with the server's fields as they arrived, stamp included. They are
  /// interpreted only when the version leaves the shelf.
  package func bytes(_ id: RecordID) -> [UInt8] {
    var fields = server.fields
    if let parent = server.parent { fields[Version.parentField] = .reference(Reference(parent)) }
    var writer = ByteWriter(capacity: 1024)
    writer.string(parent)
    EventCodec.encode(
      .fetchedSave(
        FetchedSave(
          id: id, version: Version(type: server.type, fields: fields), system: server.system, source: .feed,
          isStamped: false)), into: &writer)
    return writer.bytes
  }

  /// Reads bytes from `bytes(_:)`.
  ///
  /// - Throws: `CloudError` if they are not valid.
  package init(_ bytes: [UInt8]) throws(CloudError) {
    var reader = ByteReader(bytes)
    do {
      parent = try reader.string()
      guard case .fetchedSave(let fetched) = try EventCodec.decode(reader.rest()) else {
        throw ByteReaderError(offset: 0, what: "another event")
      }
      var fields = try fetched.content.decoded(type: fetched.type, births: [], this: .zero).version.fields
      var above: String?
      if case .reference(let reference)? = fields.removeValue(forKey: Version.parentField) { above = reference.name }
      server = ServerRecord(
        name: fetched.id.name, type: fetched.type, fields: fields, parent: above,
        system: SystemFields(
          changeTag: fetched.changeTag.isEmpty ? nil : fetched.changeTag, created: fetched.created,
          modified: fetched.modified, unknown: fetched.unknown, archive: fetched.archive))
    } catch {
      throw CloudError(
        .unexpectedServerResponse, reason: "a version that waited for its parent cannot be read: \(error)")
    }
  }

  package init(parent: String, server: ServerRecord) { (self.parent, self.server) = (parent, server) }

  /// The parent's name alone; nil if it cannot be read.
  package static func parent(in bytes: [UInt8]) -> String? {
    var reader = ByteReader(bytes)
    do throws(ByteReaderError) { return try reader.string() } catch { return nil }
  }
}
