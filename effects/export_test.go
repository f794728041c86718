package effects

import "edda/store"

// Local is the ledger of a process that shares none.
func Local(db *store.DB) Ledger { return local{db} }
