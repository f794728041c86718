package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"edda/cluster"
	"edda/standby"
)

// TestASickOwnerHandsOver: the process of an owner ends for another node when its store refuses commits for long, and
// goes on when the store recovers, or nobody could take over.
func TestASickOwnerHandsOver(t *testing.T) {
	full := errors.New("no space left on device")
	for name, tt := range map[string]struct {
		sick  func(since time.Duration) error
		heir  func(since time.Duration) string
		after time.Duration // 0: the node goes on
	}{
		"well":    {func(time.Duration) error { return nil }, func(time.Duration) string { return "n2" }, 0},
		"full":    {func(time.Duration) error { return full }, func(time.Duration) string { return "n2" }, sickEvery + sickAfter},
		"no heir": {func(time.Duration) error { return full }, func(time.Duration) string { return "" }, 0},
		"an heir later": {func(time.Duration) error { return full }, func(since time.Duration) string {
			if since < time.Minute {
				return ""
			}
			return "n3"
		}, time.Minute},
		"now and then": {func(since time.Duration) error {
			if since%(4*time.Second) == 0 {
				return nil
			}
			return full
		}, func(time.Duration) string { return "n2" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				st := &stay{}
				st.shipper.Store(standby.NewShipper(t.Context(), nil, cluster.Mark{}, "n1.1", 1))
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err := st.keepOwning(ctx, func() error { return tt.sick(time.Since(begin)) }, func() string { return tt.heir(time.Since(begin)) })
				took := time.Since(begin)
				if tt.after == 0 && (err != nil || took != time.Hour) || tt.after > 0 && (!errors.Is(err, errSick) || !errors.Is(err, full) || took != tt.after) {
					t.Errorf("%v after %s, want one after %s", err, took, tt.after)
				}
				if tt.after > 0 && !st.stays(err) {
					t.Error("the node does not go on as a standby")
				}
			})
		})
	}
}
