package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"edda/internal/subprocess"
)

// subprocess prepares a process that logs to a file in the folder. It has its own process
// group, so that Ctrl-C reaches only the demo, which then stops it in order.
func (r *run) subprocess(name, program string, env []string, args ...string) *subprocess.Process {
	return subprocess.New("the "+name, filepath.Join(r.dir, name+".log"), func() *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Env = r.dir, append(clean(os.Environ()), env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd
	})
}

// edda prepares a process of this binary.
func (r *run) edda(name string, env []string, args ...string) *subprocess.Process {
	return r.subprocess(name, r.Edda, env, args...)
}

// clean removes variables that would connect the processes to other servers.
func clean(environ []string) []string {
	var out []string
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, "EDDA_") && !strings.HasPrefix(name, "NATS_") && !strings.HasPrefix(name, "REDIS_") &&
			name != "COORDINATOR_URL" && name != "MYCELIUM_URL" {
			out = append(out, line)
		}
	}
	return out
}

// says returns nil if an address answers a GET with 200.
func says(ctx context.Context, url string) func() error {
	return func() error {
		_, err := get(ctx, url)
		return err
	}
}

// maxPage bounds the size of an answer.
const maxPage = 4 << 20

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, resp.Status, text)
	}
	return string(text), err
}
