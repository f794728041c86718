package child

import (
	"fmt"
	"net"
	"net/http"
)

// FreeAddrs finds addresses of this machine that nobody listens on.
func FreeAddrs(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // when all are found, so that they differ
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// Ready is nil where the URL answers 200.
func Ready(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s says %s", url, resp.Status)
	}
	return nil
}
