package cli

import (
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"edda/manifests"
)

// logger makes a logger that writes JSON, or readable lines on a terminal.
func (t *terminal) logger(level string, human bool) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, usagef("log level %q: want debug, info, warn or error", level)
	}
	out := zapcore.Lock(zapcore.AddSync(t.err))
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	if !human {
		return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(c), out, l)), nil
	}
	c.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	c.EncodeLevel = zapcore.LowercaseLevelEncoder
	if t.color(t.err) {
		c.EncodeLevel = zapcore.LowercaseColorLevelEncoder
	}
	c.ConsoleSeparator = "  "
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(c), out, l)), nil
}

// fewWarnings bounds the warnings that a start or a reload prints. The others are counted.
const fewWarnings = 3

// printProblems prints all errors, or the first warnings if there are no errors. It returns
// whether there are errors.
func (t *terminal) printProblems(ps manifests.Problems, w io.Writer) bool {
	if ps.Failed() {
		onlyErrors(ps).Print(w, t.color(w))
		return true
	}
	if len(ps) == 0 {
		return false
	}
	ps[:min(len(ps), fewWarnings)].Print(w, t.color(w))
	if len(ps) > fewWarnings {
		fmt.Fprintf(w, "edda: %d more warnings in the manifests; edda lint shows them\n", len(ps)-fewWarnings)
	}
	return false
}
