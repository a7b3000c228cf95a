// Whoever imports StrandlineSync sees the values of StrandlineModel, without an import of their own.

@_exported public import StrandlineModel
