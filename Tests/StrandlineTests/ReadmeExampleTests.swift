// The example of README.md, compiled: what stands between the two marks is the README's block, letter by letter.
// HouseTests compares the two. It is not run, because it speaks to Apple; CloudKitConfigurationTests runs its steps.

// README begins
import Foundation
import Strandline
import StrandlineCloudKit
struct Note: SyncRecord {
  var id = RecordName.random()
  var title: String
}

@MainActor func showLowTides(in folder: String) async throws -> Live<TypedValues<Note>> {
  let cloud = SyncConfiguration.cloudKitWeb("iCloud.app", environment: .development)
  let store = try await RecordStore.open(at: folder, types: [Note.self], syncing: cloud)
  let note = Note(title: "Low tide at six")
  let receipt = try await store.write { try $0.save(note) }  // durable when it returns
  try await receipt.uploaded()  // and now at the server
  try await store.update(Note.self, id: note.id) { $0.title = "Low tide at seven" }  // writes that field alone
  return store.live(Note.self, where: #Predicate { $0.title.starts(with: "Low") })  // a list for a view
}
// README ends
