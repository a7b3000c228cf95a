// The command's entrance.

@main
struct Tool {
  static func main() { print("strandline") }
}
