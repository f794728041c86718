package effects_test

import (
	"testing"

	"edda/effects"
	"edda/effects/ledgertest"
	"edda/internal/testkit"
	"edda/store"
)

func TestTheLocalLedgerIsALedger(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T, test func(*testing.T, ledgertest.Fixture)) {
		dir := t.TempDir()
		db, stop := testkit.OpenStore(t, dir, store.Options{})
		defer func() { stop() }()
		test(t, ledgertest.Fixture{
			Ledger: effects.Local(db),
			Again: func() effects.Ledger {
				stop()
				db, stop = testkit.OpenStore(t, dir, store.Options{})
				return effects.Local(db)
			},
		})
	})
}
