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

// LogBounds bounds the logs of jobs. Zero means the default of the package that keeps the
// logs; a negative value means no bound.
type LogBounds struct {
	Size      int64         // bytes of a log before rotation
	Rotations int           // rotated parts of each log; .1 is the newest
	Files     int           // files of a folder, rotated parts included; the oldest are removed first
	Age       time.Duration // since the last write of a file
}

// MaxRotations bounds the rotated parts of a log, because a rotation renames each.
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

// Rotate renames the log to its first part, and each part to the next one.
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

// PartOf names the n-th rotated part of a log; part 0 is the log.
func PartOf(name string, n int) string {
	if n == 0 {
		return name
	}
	return name + "." + strconv.Itoa(n)
}

// Prune removes the files that exceed the age, and the oldest files that exceed the number.
// It keeps open logs and everything that is not a regular file. It returns the removed names.
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
		many = len(all) - b.Files + b.Files/10 // a tenth more, so that not every new log prunes again
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

// removeUnused removes a log unless a run has it open.
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
