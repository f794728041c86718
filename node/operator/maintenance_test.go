package operator

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"

	"edda"
	"edda/internal/testkit"
	"edda/retention"
	"edda/server"
	"edda/store"
)

// TestMaintenanceEndsWithTheProcess: one backup at a time, and none that holds the
// stop up.
func TestMaintenanceEndsWithTheProcess(t *testing.T) {
	db, _ := testkit.OpenStore(t, t.TempDir(), store.Options{})
	ended := make(chan error, 1)
	u, err := NewMaintenance(db, func() (retention.Settings, error) { return retention.Settings{}, nil }, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- u.Run(ctx) }()
	begun, cut := make(chan struct{}), make(chan error, 1)
	release := make(chan struct{})
	go func() {
		_, err := u.Backup(context.Background(), server.Operator{}, "", func(store.Backup) io.Writer {
			close(begun)
			<-release
			return io.Discard
		})
		cut <- err
	}()
	<-begun
	if _, err := u.Backup(context.Background(), server.Operator{}, "", nil); !errors.Is(err, edda.Temporary) {
		t.Errorf("a second backup: %v", err)
	}
	stop()
	for u.mu.Lock(); !u.ended; u.mu.Lock() {
		u.mu.Unlock()
		runtime.Gosched()
	}
	u.mu.Unlock()
	close(release)
	if err := <-cut; !errors.Is(err, context.Canceled) {
		t.Errorf("the backup under way: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := u.Doctor(context.Background(), func(any) {}); !errors.Is(err, errStopping) {
		t.Errorf("after the stop: %v", err)
	}
}
