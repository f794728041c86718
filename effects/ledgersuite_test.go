package effects_test

import (
	"context"
	"testing"

	"edda/effects"
	"edda/effects/ledgertest"
	"edda/store"
)

func TestTheLocalLedgerIsALedger(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T, test func(*testing.T, ledgertest.Subject)) {
		dir := t.TempDir()
		db, stop := opened(t, dir)
		defer func() { stop() }()
		test(t, ledgertest.Subject{
			Ledger: effects.Local(db),
			Again: func() effects.Ledger {
				stop()
				db, stop = opened(t, dir)
				return effects.Local(db)
			},
		})
	})
}

// opened runs a store; what is returned stops it.
func opened(t *testing.T, dir string) (*store.DB, func()) {
	t.Helper()
	db, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- db.Run(ctx) }()
	return db, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
