// The files of the page, which are part of the program: a page is served without a folder of files beside the command.

/// A file of the page.
package struct PageFile: Sendable {
  /// Its media type.
  package let type: String
  package let bytes: [UInt8]

  /// The file that a browser asks for under a path; nil if there is none. A path is only compared: none is opened.
  package init?(path: String) {
    switch path {
    case "/": (type, bytes) = ("text/html; charset=utf-8", PackageResources.page_html)
    case "/page/closed.html": (type, bytes) = ("text/html; charset=utf-8", PackageResources.closed_html)
    case "/page/page.css": (type, bytes) = ("text/css; charset=utf-8", PackageResources.page_css)
    case "/page/icon.svg": (type, bytes) = ("image/svg+xml", PackageResources.icon_svg)
    case "/page/page.js": (type, bytes) = (Self.script, PackageResources.page_js)
    case "/page/parts.js": (type, bytes) = (Self.script, PackageResources.parts_js)
    case "/page/store.js": (type, bytes) = (Self.script, PackageResources.store_js)
    case "/page/server.js": (type, bytes) = (Self.script, PackageResources.server_js)
    default: return nil
    }
  }

  private static let script = "text/javascript; charset=utf-8"
}
