// Whoever imports Strandline sees the values of StrandlineModel and StrandlineSync, without an import of their own.

@_exported public import StrandlineModel
@_exported public import StrandlineSync
