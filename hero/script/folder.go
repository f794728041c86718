package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// nobody is the folder of scripts without a context.
const nobody = "none"

func (h *Host) contextFolder(context string) string {
	if context == "" {
		context = nobody
	}
	return filepath.Join(h.options.Dir, "contexts", context)
}

// prepare creates the host's folder. It must belong to this user and be no link, because
// its parent may be writable for everybody.
func prepare(dir string) error {
	for _, d := range []string{dir, filepath.Join(dir, "contexts"), filepath.Join(dir, "claims")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("folder of scripts: %w", err)
		}
	}
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return fmt.Errorf("folder of scripts: %w", err)
	}
	if int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("folder of scripts %s belongs to user %d: give another one", dir, stat.Uid)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("folder of scripts %s is a link: give the folder itself", dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("folder of scripts: %w", err)
	}
	return nil
}

// claim is the file that records a run while it is under way. It is locked as long as the
// runner lives; Sweep clears the claims of dead runners.
type claim struct {
	Mark   mark   `json:"mark"`
	Folder string `json:"folder"`

	path string
	f    *os.File
}

// claim writes the claim of a run, and then creates its temporary folder.
func (h *Host) claim(context string) (*claim, error) {
	f, err := os.CreateTemp(filepath.Join(h.options.Dir, "claims"), "run-")
	if err != nil {
		return nil, fmt.Errorf("claim run: %w", err)
	}
	runs := filepath.Join(h.contextFolder(context), "runs")
	c := &claim{Mark: newMark(), Folder: filepath.Join(runs, filepath.Base(f.Name())), path: f.Name(), f: f}
	note, err := json.Marshal(c)
	err = errors.Join(err, unix.Flock(int(f.Fd()), unix.LOCK_EX)) // a sweep may hold it for a moment
	if err == nil {
		_, err = f.Write(note)
	}
	if err == nil {
		err = os.MkdirAll(runs, 0o700)
	}
	if err == nil {
		err = os.Mkdir(c.Folder, 0o700)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claim run: %w", err), c.release())
	}
	return c, nil
}

func (c *claim) name() string { return filepath.Base(c.path) }

// release removes the temporary folder, and then the claim.
func (c *claim) release() error {
	if err := removeAll(c.Folder); err != nil {
		return errors.Join(fmt.Errorf("remove temporary folder: %w", err), c.f.Close())
	}
	err := os.Remove(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, c.f.Close())
}

// removeAll removes a folder, even where a script has taken away its own rights.
func removeAll(folder string) error {
	if err := os.RemoveAll(folder); err == nil {
		return nil
	}
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(folder)
}

// Sweep ends the processes of dead runners and removes their temporary folders. It does not
// touch the runs of live runners, this one included. Call it before the first Run, and at
// any later time. It returns the number of runs that it cleared.
func (h *Host) Sweep() (int, error) {
	dir := filepath.Join(h.options.Dir, "claims")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	n := 0
	var all error
	for _, e := range entries {
		swept, err := h.sweepOne(filepath.Join(dir, e.Name()))
		if err != nil {
			all = errors.Join(all, fmt.Errorf("sweep %s: %w", e.Name(), err))
		}
		if swept {
			n++
		}
	}
	return n, all
}

func (h *Host) sweepOne(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false, f.Close() // its runner lives
	}
	left := &claim{path: path, f: f}
	if json.NewDecoder(f).Decode(left) != nil {
		return false, errors.Join(dropOld(path), f.Close())
	}
	if _, err := os.Lstat(path); err != nil {
		return false, f.Close() // its runner has just released it
	}
	if !strings.HasPrefix(left.Folder, filepath.Join(h.options.Dir, "contexts")+"/") || left.Mark < leastMark {
		return false, errors.Join(errors.New("the file is no claim of a run"), f.Close())
	}
	if err := left.Mark.kill(0); err != nil {
		return false, errors.Join(err, f.Close())
	}
	if h.cgroups != nil {
		if err := h.cgroups.of(left.Mark).remove(); err != nil {
			return false, errors.Join(err, f.Close())
		}
	}
	return true, left.release()
}

// emptyFor is the age from which an unreadable claim belongs to a runner that died while it
// wrote the claim. Such a run has no folder and no process.
const emptyFor = time.Minute

func dropOld(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(info.ModTime()) < emptyFor {
		return nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	return err
}
