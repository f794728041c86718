package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// An interrupted run says so, and leaves nothing behind.
func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	err := Run(ctx, Options{Edda: "/bin/false", Out: &out, Embedded: true, Timeout: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
