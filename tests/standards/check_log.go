// A tlog-tiles folder and a proof, checked by Go's sumdb packages (note, tlog) alone: no code of Palyra's.
//
//	check_log FOLDER PROOF VKEY
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type hashes []tlog.Hash

func (h hashes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	found := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		if at >= int64(len(h)) {
			return nil, fmt.Errorf("no hash %d", at)
		}
		found[i] = h[at]
	}
	return found, nil
}

func must(err error) {
	if err != nil {
		fmt.Println("NOT ok:", err)
		os.Exit(1)
	}
}

func check(holds bool, what string) {
	if !holds {
		must(fmt.Errorf("%s", what))
	}
}

// head opens a checkpoint: origin, size and root, signed as a note.
func head(text []byte, verifiers note.Verifiers, name string) (int64, tlog.Hash) {
	opened, err := note.Open(text, verifiers)
	must(err)
	lines := strings.Split(opened.Text, "\n")
	check(len(lines) == 4 && lines[0] == name, "the checkpoint is of another log")
	size, err := strconv.ParseInt(lines[1], 10, 64)
	must(err)
	root, err := tlog.ParseHash(lines[2])
	must(err)
	return size, root
}

func decode(texts []string) []tlog.Hash {
	var found []tlog.Hash
	for _, text := range texts {
		raw, err := base64.StdEncoding.DecodeString(text)
		must(err)
		var one tlog.Hash
		check(len(raw) == len(one), "a hash has another length")
		copy(one[:], raw)
		found = append(found, one)
	}
	return found
}

func main() {
	folder, proofFile, vkey := os.Args[1], os.Args[2], os.Args[3]
	verifier, err := note.NewVerifier(vkey)
	must(err)
	verifiers := note.VerifierList(verifier)
	text, err := os.ReadFile(filepath.Join(folder, "checkpoint"))
	must(err)
	size, root := head(text, verifiers, verifier.Name())

	var stored hashes
	for n := int64(0); n < size; {
		width := size - n
		name := fmt.Sprintf("tile/entries/%03d", n/256)
		if width < 256 {
			name += fmt.Sprintf(".p/%d", width)
		} else {
			width = 256
		}
		data, err := os.ReadFile(filepath.Join(folder, name))
		must(err)
		for i := int64(0); i < width; i, n = i+1, n+1 {
			length := int(binary.BigEndian.Uint16(data))
			more, err := tlog.StoredHashes(n, data[2:2+length], stored)
			must(err)
			stored = append(stored, more...)
			data = data[2+length:]
		}
		check(len(data) == 0, "bytes behind a bundle's end")
	}
	computed, err := tlog.TreeHash(size, stored)
	must(err)
	check(computed == root, "the entries are not those of the signed checkpoint")

	for _, tile := range tlog.NewTiles(8, 0, size) {
		if tile.W < 256 && int64(tile.W) != (size>>(8*uint(tile.L)))%256 {
			continue // a width that the log had on its way here
		}
		wanted, err := tlog.ReadTileData(tile, stored)
		must(err)
		path := strings.Replace(tile.Path(), "tile/8/", "tile/", 1)
		data, err := os.ReadFile(filepath.Join(folder, path))
		must(err)
		check(bytes.Equal(data, wanted), path+" is another tile")
	}

	var proof struct {
		Checkpoint string
		Entries    []struct {
			Index int64
			Body  string
			Proof []string
		}
		Receipt struct {
			Checkpoint  string
			Consistency []string
		}
	}
	text, err = os.ReadFile(proofFile)
	must(err)
	must(json.Unmarshal(text, &proof))
	newSize, newRoot := head([]byte(proof.Checkpoint), verifiers, verifier.Name())
	for _, entry := range proof.Entries {
		leaf := tlog.RecordHash([]byte(entry.Body))
		must(tlog.CheckRecord(decode(entry.Proof), newSize, newRoot, entry.Index, leaf))
	}
	oldSize, oldRoot := head([]byte(proof.Receipt.Checkpoint), verifiers, verifier.Name())
	must(tlog.CheckTree(decode(proof.Receipt.Consistency), newSize, newRoot, oldSize, oldRoot))
	fmt.Printf("%d entries\n", size)
}
