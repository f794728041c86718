package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asServer makes the test binary the server of BenchmarkCall, so that the CPU of a
// process is that of the calls alone.
const asServer = "HTTP1_TEST_IS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		serve()
		return
	}
	log.SetOutput(io.Discard) // net/http tells of answers that nobody asked for
	m.Run()
}

// serve answers over HTTP until its input ends.
func serve() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"0001","status":"accepted"}`)
		}))
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// BenchmarkCall makes an order's calls, 64 at once, to a server in another process.
func BenchmarkCall(b *testing.B) {
	address := otherProcess(b)
	for _, over := range []string{"net/http", "http1"} {
		b.Run(over, func(b *testing.B) {
			t := transportOf(b, over)
			b.ReportAllocs()
			b.SetParallelism(32)
			before := used(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					order(b, t, address)
				}
			})
			b.ReportMetric(float64(used(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func otherProcess(b *testing.B) string {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asServer+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// order makes one call and reads its answer.
func order(b *testing.B, over http.RoundTripper, address string) {
	payload := bytes.Repeat([]byte("x"), 300)
	req, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://"+address+"/effects/reserve", bytes.NewReader(payload))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "c1")
	req.Header.Set("User-Agent", "edda")
	resp, err := over.RoundTrip(req)
	if err != nil {
		b.Error(err)
		return
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.Error(resp.Status, err)
	}
	_ = resp.Body.Close()
}

// used is the CPU time of this process.
func used(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
