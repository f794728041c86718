package redisdb

import (
	"errors"
	"testing"
	"time"

	"edda/internal/testkit"
)

// A key whose work is done while the list is compared seemed to be one that
// nobody had heard of.
func TestNoKeyLeavesWhileTheListIsCompared(t *testing.T) {
	in := &intake{taken: map[string]int{}}
	if _, err := in.take(func() (string, error) { return "a", nil }); err != nil {
		t.Fatal(err)
	}
	_, _ = in.take(func() (string, error) { return "", errors.New("the connection broke") })
	removed := make(chan struct{})
	left := make(chan error, 1)
	stray, err := in.stray(func() ([]string, error) {
		go func() { left <- in.leaves("a", func() (bool, error) { close(removed); return true, nil }) }()
		select {
		case <-removed:
			t.Error("removed between listing and comparing")
		case <-time.After(30 * time.Millisecond):
		}
		return []string{"a"}, nil
	})
	if err != nil || stray != "" {
		t.Errorf("%q is a stray, %v", stray, err)
	}
	testkit.Must(t, <-left)
	if len(in.taken) != 0 {
		t.Errorf("taken %v", in.taken)
	}
}

func TestAKeyThatDidNotLeaveIsStillTaken(t *testing.T) {
	in := &intake{taken: map[string]int{"a": 2}}
	broken := errors.New("the connection broke")
	is(t, in.leaves("a", func() (bool, error) { return true, broken }), broken)
	testkit.Must(t, in.leaves("a", func() (bool, error) { return false, nil }))
	if in.taken["a"] != 2 {
		t.Errorf("taken %v", in.taken)
	}
	testkit.Must(t, in.leaves("a", func() (bool, error) { return true, nil }))
	if in.taken["a"] != 1 {
		t.Errorf("taken %v", in.taken)
	}
}
