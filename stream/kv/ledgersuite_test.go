package kv

import (
	"context"
	"fmt"
	"testing"

	"edda/effects"
	"edda/effects/ledgertest"
)

func TestLedgerIsALedger(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T, test func(*testing.T, ledgertest.Fixture)) {
		bubble(t, func(ctx context.Context, w *world) {
			runs := 0
			next := func(home string) effects.Ledger {
				runs++
				return w.ledgerOf(home, fmt.Sprintf("r%d", runs))
			}
			test(w.t, ledgertest.Fixture{
				Ledger: next("s0"),
				Other:  func() effects.Ledger { return next(fmt.Sprintf("s%d", runs)) },
				Again:  func() effects.Ledger { return next("s0") },
				Silent: func(f func()) { w.silently(ctx, "KV_"+LedgerBucket, f) },
			})
		})
	})
}
