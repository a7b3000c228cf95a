// temporary
extension Log { package func mergeSegments() throws(LogError) {} }
