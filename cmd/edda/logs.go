package main

import (
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"edda/manifests"
)

// logger writes JSON, or lines for people where they look at a terminal.
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

// printProblems shows errors in full and counts warnings, which edda lint
// shows; it tells whether there are errors.
func (t *terminal) printProblems(ps manifests.Problems, w io.Writer) bool {
	if ps.Failed() {
		onlyErrors(ps).Print(w, t.color(w))
		return true
	}
	if len(ps) > 0 {
		fmt.Fprintf(w, "edda: %s in the manifests; edda lint shows them\n", ps.Count())
	}
	return false
}
