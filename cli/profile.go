package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
)

// profiles writes CPU profiles for the benchmark. An input line names the file of a new
// profile; an empty line ends it. It returns at the end of its input.
func profiles(in io.Reader, complain func(error)) {
	var file *os.File
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var err error
		if name := lines.Text(); name != "" {
			file, err = beginProfile(name)
		} else {
			err = endProfile(file)
			file = nil
		}
		if err != nil {
			complain(fmt.Errorf("profile: %w", err))
		}
	}
}

// unfinished is the suffix of a profile that is being written.
const unfinished = ".part"

func beginProfile(name string) (*os.File, error) {
	f, err := os.Create(name + unfinished)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return f, nil
}

// endProfile renames a complete profile.
func endProfile(f *os.File) error {
	if f == nil {
		return nil
	}
	pprof.StopCPUProfile()
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), f.Name()[:len(f.Name())-len(unfinished)])
}
