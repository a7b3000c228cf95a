// Decodes the records of JSON Lines on a thread of its own, so that a command saves what was decoded while the next lines
// are read.
//
// The lines of one piece of the stream are handed over together, as soon as they are there: what a slow producer writes
// waits for nothing behind it. At most `ahead` pieces wait, so memory does not grow with the stream.

import Strandline
import StrandlineHost
import StrandlineJSON
import StrandlineSystem

/// The records of a stream of lines, in their order. One thread may ask for them.
final class RecordLines {
  /// A line that holds something.
  struct Line: Sendable {
    /// Its number, counted from 1.
    var number: Int
    /// Its record, or why it is none.
    var record: Result<Record, BadLine>
    /// As `RecordLine.isVerbatim`.
    var isVerbatim = false
  }

  private enum Piece: Sendable {
    case lines([Line], bytesRead: UInt64)
    case failed(any Error)
  }

  private let pieces = Handover<Piece>(ahead: ahead)
  private var lines: [Line] = []
  private var place = 0
  /// The number of the line that `next` returned last; 0 before the first.
  var number: Int { place == 0 ? lastNumber : lines[place - 1].number }
  private var lastNumber = 0
  /// How many bytes of the stream the lines up to the last one that `next` returned took, with those read together with it.
  private(set) var bytesRead: UInt64 = 0

  private static let ahead = 2

  /// Begins to read.
  ///
  /// - Parameter zone: The zone of a line that names none.
  init(_ reader: LineReader, zone: String) throws {
    let pieces = pieces
    try BlockingThread.start(name: "read-lines") {
      Self.read(reader, zone, pieces)
      pieces.end()
    }
  }

  private static func read(_ reader: LineReader, _ zone: String, _ pieces: Handover<Piece>) {
    var reader = reader
    var decoder = LineDecoder()
    do {
      while let block = try reader.next() {
        var lines: [Line] = []
        lines.reserveCapacity(block.lines.count)
        for (index, place) in block.lines.enumerated() {
          let number = block.firstNumber + index
          do throws(BadLine) {
            guard let place = try block.content(place) else { continue }
            let line = try decoder.line(block.bytes, place)
            let record = try line.record(in: zone)
            lines.append(Line(number: number, record: .success(record), isVerbatim: line.isVerbatim))
          } catch { lines.append(Line(number: number, record: .failure(error))) }
        }
        guard pieces.give(.lines(lines, bytesRead: block.bytesRead)) else { return }
      }
    } catch { _ = pieces.give(.failed(error)) }
  }

  /// Waits for the next line that holds something; nil at the end of the stream.
  func next() throws -> Line? {
    guard try hasNext() else { return nil }
    defer { place += 1 }
    return lines[place]
  }

  /// The same, for a caller that takes the line later. False at the end of the stream.
  func hasNext() throws -> Bool {
    while place == lines.count {
      lastNumber = number
      lines = []
      place = 0
      switch pieces.take() {
      case .lines(let more, let bytes): (lines, bytesRead) = (more, bytes)
      case .failed(let error): throw error
      case nil: return false
      }
    }
    return true
  }

  /// Ends the reading. If the thread waits for the stream, it ends after that, or with the process.
  func stop() { pieces.stop() }

  /// The same for another thread: `next` finds the end of the stream, though another thread waits in it.
  var stopper: @Sendable () -> Void { { [pieces] in pieces.stop() } }
}
