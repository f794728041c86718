//go:build !race

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"edda/internal/lifecycle"
)

// options are the settings of the service section of a unit, the last of each name.
func options(t *testing.T, path string) map[string]string {
	t.Helper()
	all, err := unit.DeserializeOptions(strings.NewReader(read(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, o := range all {
		if o.Section == "Service" {
			out[o.Name] = o.Value
		}
	}
	return out
}

func seconds(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text + "s")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTheUnitGivesTheDrainItsTimeAndTheServiceNoRights(t *testing.T) {
	t.Parallel()
	o := options(t, "deploy/systemd/edda.service")
	if within := seconds(t, o["TimeoutStopSec"]); within.Seconds() < drainSeconds() {
		t.Errorf("TimeoutStopSec is %s, and a stop may take %s", within, lifecycle.MaxStop())
	}
	if within := seconds(t, o["WatchdogSec"]); within < 30*time.Second {
		t.Errorf("WatchdogSec is %s: a slow disk would end the process", within)
	}
	for name, want := range map[string]string{
		"Type": "notify", "TimeoutStartSec": "infinity", "Restart": "on-failure", "RestartPreventExitStatus": "2",
		"ExecReload": "/bin/kill -HUP $MAINPID", "StateDirectory": "edda", "Environment": "EDDA_DATA=%S/edda",
		"NoNewPrivileges": "yes", "ProtectSystem": "strict", "CapabilityBoundingSet": "", "MemoryDenyWriteExecute": "yes",
	} {
		if got, there := o[name]; !there || got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
}

// drainSeconds is what a supervisor should grant a stop, in seconds.
func drainSeconds() float64 { return (lifecycle.MaxStop() + 5*time.Second).Seconds() }

// Where systemd is installed, it judges the unit itself: also in a machine that it does not run.
func TestSystemdFindsNothingWrongWithTheUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // the test above reads the unit
	}
	dir := t.TempDir()
	text := strings.ReplaceAll(read(t, "deploy/systemd/edda.service"), "/usr/bin/edda", edda())
	file := filepath.Join(dir, "edda.service")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file+".d", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(file+".d", "credentials.conf"), []byte(read(t, "deploy/systemd/credentials.conf")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", "--man=no", file}, {"security", "--offline=true", "--threshold=20", file}} {
		out, err := exec.Command(analyze, args...).CombinedOutput()
		if err != nil || strings.Contains(string(out), "Unknown") {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}
