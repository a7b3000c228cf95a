// Goal: each answer of the server names the server's time, in the form that a client reads. Method: times of many kinds, and the
// answers to a request that is served and to one that is refused.

import StrandlineCloudKit
import StrandlineServer
import StrandlineSystem
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The time in an answer` {
  @Test func `is written as it is read`() {
    #expect(HTTPDate.text(784_111_777_999) == "Sun, 06 Nov 1994 08:49:37 GMT")
    #expect(HTTPDate.text(0) == "Thu, 01 Jan 1970 00:00:00 GMT")
    #expect(HTTPDate.text(951_782_400_000) == "Tue, 29 Feb 2000 00:00:00 GMT")
    #expect(HTTPDate.text(.max) == "Fri, 31 Dec 9999 23:59:59 GMT")
    let random = SeededRandom(seed: 1)
    for _ in 0..<1_000 {
      let seconds = Int64(random.below(253_402_300_800))
      #expect(HTTPDate.milliseconds(HTTPDate.text(seconds * 1000 + 7)) == seconds * 1000)
    }
  }

  @Test(arguments: ["/database/1/c/development/private/users/caller", "/nowhere"])
  func `is that of the server's clock`(_ path: String) throws {
    let server = CloudServer.still()
    guard case .respond(let response) = server.answer(HTTPRequest(method: "GET", origin: "", path: path)) else {
      return #expect(Bool(false), "there is no answer")
    }
    #expect(response.headers["Date"].flatMap { HTTPDate.milliseconds($0) } == StillClock().wallMilliseconds())
  }
}
