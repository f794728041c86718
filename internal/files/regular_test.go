package files

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestWhatIsNoFileHoldsUpNobody: a pipe that nobody writes, a socket, a device without an
// end, and links to them.
func TestWhatIsNoFileHoldsUpNobody(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	made := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	made(syscall.Mkfifo(at("pipe"), 0o600))
	made(os.Symlink(at("pipe"), at("link to a pipe")))
	made(os.Symlink("/dev/zero", at("zero")))
	made(os.Mkdir(at("folder"), 0o700))
	made(os.Symlink(at("nothing"), at("broken")))
	made(os.WriteFile(at("empty"), nil, 0o600))
	made(os.WriteFile(at("short"), []byte("abc"), 0o600))
	made(os.WriteFile(at("long"), bytes.Repeat([]byte("x"), 100), 0o600))
	made(os.Symlink(at("short"), at("link")))
	t.Chdir(dir) // the path of a socket is short
	l, err := net.Listen("unix", "socket")
	made(err)
	defer l.Close()
	for name, want := range map[string]string{
		"pipe": "is a pipe", "link to a pipe": "is a pipe", "zero": "is a device", "folder": "is a folder", "socket": "is a socket", "broken": "no such file", "nothing": "no such file",
		"empty": "", "short": "abc", "link": "abc", "long": "xxxxx",
	} {
		type answer struct {
			text []byte
			err  error
		}
		done := make(chan answer, 1)
		go func() {
			text, _, err := Regular(at(name), 4)
			done <- answer{text, err}
		}()
		select {
		case got := <-done:
			isFile := name == "empty" || name == "short" || name == "link" || name == "long"
			switch {
			case isFile && (got.err != nil || string(got.text) != want):
				t.Errorf("%s: %q %v", name, got.text, got.err)
			case !isFile && (got.err == nil || !strings.Contains(got.err.Error(), want) || !strings.Contains(got.err.Error(), name)):
				t.Errorf("%s: %q %v, want %q", name, got.text, got.err, want)
			case !isFile && errors.Is(got.err, ErrNotRegular) == errors.Is(got.err, fs.ErrNotExist):
				t.Errorf("%s: %v", name, got.err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s is being read for a minute", name)
		}
	}
}
