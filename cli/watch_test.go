package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAFileThatChangedWhileItWasReadWasNotReloaded(t *testing.T) {
	dir := folder(t, map[string]string{"order.yaml": orderSaga})
	w := newWatch([]string{dir})
	defer w.close()
	write(t, filepath.Join(dir, "order.yaml"), orderSaga+"\n")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen := false
	if err := w.run(ctx, func() { seen = true; cancel() }); err != nil || !seen {
		t.Errorf("the change is seen: %v (%v)", seen, err)
	}
}

func TestOtherFilesAreNoChange(t *testing.T) {
	dir := folder(t, map[string]string{"order.yaml": orderSaga})
	w := newWatch([]string{dir})
	defer w.close()
	write(t, filepath.Join(dir, "order.yaml~"), "x")
	if err := os.Chmod(filepath.Join(dir, "order.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*settle)
	defer cancel()
	if err := w.run(ctx, func() { t.Error("it is a change") }); err != nil {
		t.Error(err)
	}
}

func TestAWatchOfNothingSaysWhy(t *testing.T) {
	w := newWatch([]string{filepath.Join(t.TempDir(), "gone")})
	defer w.close()
	if err := w.run(t.Context(), func() { t.Error("it is a change") }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it says %v", err)
	}
}
