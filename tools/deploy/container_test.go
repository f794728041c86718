//go:build !race

package deploy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"edda/internal/harness"
)

// instruction is one of a Dockerfile, without comments and continued lines, which ours has not.
type instruction struct{ verb, rest string }

func dockerfile(t *testing.T) (stages [][]instruction) {
	t.Helper()
	for line := range strings.Lines(read(t, "Dockerfile")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasSuffix(line, `\`) {
			t.Fatalf("this test reads no continued line: %s", line)
		}
		verb, rest, _ := strings.Cut(line, " ")
		if verb == "FROM" {
			stages = append(stages, nil)
		}
		stages[len(stages)-1] = append(stages[len(stages)-1], instruction{verb, rest})
	}
	return stages
}

// of returns the arguments of the instructions of a verb.
func of(stage []instruction, verb string) (out []string) {
	for _, i := range stage {
		if i.verb == verb {
			out = append(out, i.rest)
		}
	}
	return out
}

// image carries out the steps of the Dockerfile: what it runs, in the repository and with /out in
// a temporary folder, and what it copies, into a root of its own.
func image(t *testing.T, stages [][]instruction) (dir string) {
	t.Helper()
	work, dir := t.TempDir(), t.TempDir()
	source := func(path string) string {
		if strings.HasPrefix(path, "/out/") {
			return filepath.Join(work, path)
		}
		return path // of the base image, such as the certificates
	}
	for _, step := range of(stages[0], "RUN") {
		if step == "go mod download" {
			continue // the modules are here
		}
		// Without -trimpath, as the tests build: with it every package would be compiled again.
		cmd := exec.Command("sh", "-ec", strings.NewReplacer("/out/", work+"/out/", " -trimpath", "").Replace(step))
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "VERSION="+version)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("RUN %s: %v\n%s", step, err, out)
		}
	}
	for _, step := range of(stages[1], "COPY") {
		words := slices.DeleteFunc(strings.Fields(step), func(w string) bool { return strings.HasPrefix(w, "--") })
		if len(words) != 2 || !strings.Contains(step, "--from=build") {
			t.Fatalf("COPY %s", step)
		}
		to := filepath.Join(dir, words[1])
		if strings.HasSuffix(words[1], "/") {
			to = filepath.Join(to, filepath.Base(words[0]))
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-r", source(words[0]), to).CombinedOutput(); err != nil {
			if strings.HasPrefix(words[0], "/etc/ssl/") {
				continue // this machine keeps its certificates elsewhere
			}
			t.Fatalf("COPY %s: %v\n%s", step, err, out)
		}
		if _, owner, found := strings.Cut(step, "--chown="); found && os.Geteuid() == 0 {
			if out, err := exec.Command("chown", "-R", strings.Fields(owner)[0], to).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTheImageRunsAsNobodyAndIsHealthy(t *testing.T) {
	t.Parallel()
	stages := dockerfile(t)
	if len(stages) != 2 || stages[1][0].rest != "scratch" {
		t.Fatalf("the image is not built in two stages: %v", stages)
	}
	last := stages[1]
	for verb, want := range map[string]string{
		"USER": "65532:65532", "VOLUME": "/data", "ENV": "EDDA_DATA=/data", "ENTRYPOINT": `["/edda"]`,
		"CMD": `["run", "--config", "/etc/edda/edda.yaml"]`,
	} {
		if got := of(last, verb); !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q", verb, got, want)
		}
	}
	if got := of(last, "HEALTHCHECK"); len(got) != 1 || !strings.HasSuffix(got[0], `CMD ["/edda", "health"]`) {
		t.Errorf("HEALTHCHECK is %q", got)
	}
	dir := image(t, stages)
	addrs, err := harness.FreeAddrs(2)
	if err != nil {
		t.Fatal(err)
	}
	// in makes a command of the container: in its root, as its user, where the test may do that.
	in := func(args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(dir, "edda"), args...)
		cmd.Env = []string{"EDDA_DATA=" + filepath.Join(dir, "data"), "EDDA_URL=http://" + addrs[0]}
		if os.Geteuid() == 0 {
			cmd.Path, cmd.Env[0] = "/edda", "EDDA_DATA=/data"
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
			cmd.Dir = "/"
		}
		return cmd
	}
	if out, err := in("version").CombinedOutput(); err != nil || !strings.Contains(string(out), version) {
		t.Fatalf("edda version: %v\n%s", err, out)
	}
	if out, err := in("health").CombinedOutput(); err == nil {
		t.Errorf("it is healthy before it runs: %s", out)
	}
	manifests, data := filepath.Join(dir, "manifests"), "/data"
	if err := os.CopyFS(manifests, os.DirFS(filepath.Join(root, "manifests/examples"))); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		data = filepath.Join(dir, data)
	} else {
		manifests = "/manifests"
	}
	p := harness.New("edda", filepath.Join(t.TempDir(), "log"), func() *exec.Cmd {
		return in("dev", manifests, "--addr", addrs[0], "--nats-addr", addrs[1], "--data", data)
	})
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.Until(t.Context(), patience, harness.Ready(t.Context(), "http://"+addrs[0]+"/ready")); err != nil {
		t.Fatalf("%v\n%s", err, p.Tail())
	}
	if out, err := in("health").CombinedOutput(); err != nil || !strings.Contains(string(out), "storage up") {
		t.Errorf("edda health: %v\n%s", err, out)
	}
	// What the chart's preStop hook runs, in an image without a database of users.
	if out, err := in("drain", "--by", "kubelet", "--why", "the pod stops").CombinedOutput(); err != nil {
		t.Errorf("edda drain: %v\n%s", err, out)
	}
	select {
	case <-p.Ended():
	case <-time.After(patience):
		t.Error("the drain did not end the process")
	}
}

// composition is what the test reads of the compose file.
type composition struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Build       struct{ Context string }
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Volumes     []string
		StopGrace   string `yaml:"stop_grace_period"`
		ReadOnly    bool   `yaml:"read_only"`
		Healthcheck struct{ Test []string }
		Configs     []struct{ Source, Target string }
	}
	Configs map[string]struct{ Content string }
	Volumes map[string]any
}

func TestTheCompositionStartsNATSFirstAndStopsInOrder(t *testing.T) {
	t.Parallel()
	var c composition
	if err := yaml.Unmarshal([]byte(read(t, "deploy/compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	nats, ours := c.Services["nats"], c.Services["edda"]
	if ours.DependsOn["nats"].Condition != "service_healthy" || len(nats.Healthcheck.Test) == 0 {
		t.Error("edda does not wait for a healthy NATS")
	}
	for name, s := range c.Services {
		if within, err := time.ParseDuration(s.StopGrace); err != nil || within.Seconds() < drainSeconds() {
			t.Errorf("%s has %s to stop: %v", name, s.StopGrace, err)
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, named := c.Volumes[volume]; !named && !strings.HasPrefix(v, "${") {
				t.Errorf("%s has the volume %s, which is not declared", name, v)
			}
		}
		for _, config := range s.Configs {
			if c.Configs[config.Source].Content == "" {
				t.Errorf("%s has the file %s without content", name, config.Source)
			}
		}
	}
	if !ours.ReadOnly || !strings.Contains(c.Configs["nats"].Content, "sync_interval: always") {
		t.Error("the file system is writable, or NATS does not sync")
	}
	if _, err := os.Stat(filepath.Join(root, "deploy", ours.Build.Context, "Dockerfile")); err != nil {
		t.Error(err)
	}
	settings := filepath.Join(t.TempDir(), "edda.yaml")
	if err := os.WriteFile(settings, []byte(c.Configs["edda"].Content), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, edda(), "config", "view", "--config", settings).CombinedOutput(); err != nil || !strings.Contains(string(out), "sync_interval: 0s") {
		t.Errorf("edda config view: %v\n%s", err, out)
	}
}
