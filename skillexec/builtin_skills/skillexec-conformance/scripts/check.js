// What node sees of skillexec's promises; prints a report as JSON.
"use strict";
const fs = require("fs");
const net = require("net");
const path = require("path");

const REFUSED = new Set(["EACCES", "EPERM", "EROFS"]);
const checks = [];
const check = (name, ok, detail) => checks.push({ name, ok, detail: String(detail) });

function refused(action) {
  try {
    action();
    return false;
  } catch (error) {
    return REFUSED.has(error.code);
  }
}

function attempt(name, detail, action) {
  try {
    check(name, Boolean(action()), detail);
  } catch (error) {
    check(name, false, error.message);
  }
}

function connection(host) {
  return new Promise((resolve) => {
    const socket = net.connect({ host, port: 443, timeout: 2000 });
    const end = (word) => {
      socket.destroy();
      resolve(word);
    };
    socket.on("connect", () => end("connected"));
    socket.on("timeout", () => end("timeout"));
    socket.on("error", (error) => end(error.code));
  });
}

async function main() {
  const input = fs.readFileSync(0, "utf8");
  let echo = null;
  attempt("input_echoed", `${input.length} characters`, () => {
    echo = input ? JSON.parse(input) : null;
    return true;
  });
  const { SKILLEXEC_SKILL: skill, SKILLEXEC_OUT: out, HOME: home } = process.env;
  check("working_folder", process.cwd() === skill && fs.existsSync("SKILL.md"), process.cwd());
  check("skill_read_only", refused(() => fs.writeFileSync("intruder", "")), "creating a file");
  check("root_read_only", refused(() => fs.writeFileSync("/etc/intruder", "")), "creating a file in /etc");
  attempt("scratch_writable", home, () => fs.writeFileSync(path.join(home, "trial-js"), "x") === undefined);
  check("not_root", process.getuid() !== 0, `uid ${process.getuid()}`);
  attempt("artifact_written", "from-node.txt", () => {
    fs.copyFileSync("assets/greeting.txt", path.join(out, "from-node.txt"));
    return fs.existsSync(path.join(out, "from-node.txt"));
  });
  const outcome = await connection("1.1.1.1");
  check("no_network", outcome !== "connected", outcome);
  const ok = checks.every((entry) => entry.ok);
  const report = { skill: "skillexec-conformance", script: "check.js", ok, checks, echo, artifacts: ["from-node.txt"] };
  console.log(JSON.stringify(report));
  process.exitCode = ok ? 0 : 1;
}

main();
