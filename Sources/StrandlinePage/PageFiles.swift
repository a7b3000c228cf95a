// The files of the page, which are part of the program: a page is served without a folder of files beside the command.

/// A file of the page.
package struct PageFile: Sendable {
  /// Its media type.
  package let type: String
  package let bytes: [UInt8]

  /// The files under the paths by which a browser asks for them. A path is only compared: none is opened.
  package static let all: [String: PageFile] = [
    "/": PageFile(type: "text/html; charset=utf-8", bytes: PackageResources.page_html),
    "/page/closed.html": PageFile(type: "text/html; charset=utf-8", bytes: PackageResources.closed_html),
    "/page/page.css": PageFile(type: "text/css; charset=utf-8", bytes: PackageResources.page_css),
    "/page/icon.svg": PageFile(type: "image/svg+xml", bytes: PackageResources.icon_svg),
    "/page/page.js": script(PackageResources.page_js), "/page/parts.js": script(PackageResources.parts_js),
    "/page/grid.js": script(PackageResources.grid_js), "/page/store.js": script(PackageResources.store_js),
    "/page/sync.js": script(PackageResources.sync_js), "/page/log.js": script(PackageResources.log_js),
    "/page/server.js": script(PackageResources.server_js),
  ]

  private static func script(_ bytes: [UInt8]) -> PageFile {
    PageFile(type: "text/javascript; charset=utf-8", bytes: bytes)
  }
}
