package script

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// LogBounds are how much is kept of the logs of jobs. A zero means the default of the package that
// keeps them, a negative one no bound.
type LogBounds struct {
	Size      int64         // bytes of a log before it is rotated
	Rotations int           // older parts beside each log: .1 is the newest of them
	Files     int           // files of a folder, rotated ones too; the oldest go first
	Age       time.Duration // since a file was last written
}

// MaxRotations bounds the older parts of a log: each is renamed at a rotation.
const MaxRotations = 100

// Check refuses bounds that make no sense.
func (b LogBounds) Check() error {
	switch {
	case b.Rotations > MaxRotations:
		return fmt.Errorf("log rotations %d: want at most %d", b.Rotations, MaxRotations)
	case b.Age > 0 && b.Age < time.Minute:
		return fmt.Errorf("log age %s: want a minute at least", b.Age)
	}
	return nil
}

// Rotate makes the log of that name its first older part, and each part the next one.
func (b LogBounds) Rotate(root *os.Root, name string) error {
	if b.Rotations <= 0 {
		return root.Remove(name)
	}
	for n := b.Rotations - 1; n >= 0; n-- {
		if err := root.Rename(PartOf(name, n), PartOf(name, n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// PartOf names the n-th older part of a log; 0 is the log.
func PartOf(name string, n int) string {
	if n == 0 {
		return name
	}
	return name + "." + strconv.Itoa(n)
}

// Prune removes those of the files that were last written too long ago, and then the
// oldest of more than there may be. One that is being written stays, and so does what is
// no plain file. It tells what it removed.
func (b LogBounds) Prune(root *os.Root, names []string, now time.Time) (removed []string, err error) {
	type aged struct {
		name string
		at   time.Time
	}
	var all []aged
	for _, name := range names {
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			all = append(all, aged{name, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return a.at.Compare(b.at) })
	many := 0
	if b.Files > 0 && len(all) > b.Files {
		many = len(all) - b.Files + b.Files/10 // and a tenth more, so that not every new log looks again
	}
	for i, old := range all {
		if i >= many && !over(now.Sub(old.at), b.Age) {
			break
		}
		gone, err := removeUnused(root, old.name)
		if err != nil {
			return removed, err
		}
		if gone {
			removed = append(removed, old.name)
		}
	}
	return removed, nil
}

// removeUnused removes a log unless a run writes it.
func removeUnused(root *os.Root, name string) (bool, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false, nil
	}
	err = root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
