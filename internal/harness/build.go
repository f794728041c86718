package harness

import (
	"fmt"
	"os"
	"os/exec"
)

// GoBuild runs go build as make build does, also where the tests have cgo for the race detector: every
// package would be compiled once more. The compiler is quicker with more garbage.
func GoBuild(args ...string) error {
	cmd := exec.Command("go", append([]string{"build"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOGC=400")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}
