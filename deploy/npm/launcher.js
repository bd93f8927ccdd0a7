#!/usr/bin/env node
// Starts the raincheck program of this system, and ends as it ends. A package of its own brings the program: npm installs
// the one of `optionalDependencies` whose `os`, `cpu` and `libc` are those of this machine.
'use strict';

const { spawn } = require('node:child_process');
const { optionalDependencies } = require('./package.json');

function fail(text) {
  console.error(`error: ${text}`);
  process.exit(1);
}

function libc() {
  if (process.platform !== 'linux') return '';
  return process.report.getReport().header.glibcVersionRuntime ? '' : ' without glibc';
}

function program() {
  const name = `raincheck-${process.platform}-${process.arch}`;
  const system = `${process.platform}-${process.arch}${libc()}`;
  if (!Object.hasOwn(optionalDependencies, name) || libc()) {
    const all = Object.keys(optionalDependencies).map((other) => other.slice('raincheck-'.length));
    fail(`raincheck has no program for ${system}: there is one for ${all.join(', ')} (Linux with glibc)`);
  }
  try {
    return require.resolve(`${name}/bin/raincheck`);
  } catch {
    fail(`the package ${name}, which has the program for ${system}, is not installed: install again without --omit=optional`);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: 'inherit' });
child.on('error', (error) => fail(`${child.spawnfile} cannot be run: ${error.message}`));

// A terminal sends these to every process in front of it, so there the program has them already: a second SIGINT would say
// that it shall stop at once.
const ofTerminals = ['SIGINT', 'SIGHUP'];
for (const signal of ['SIGTERM', ...ofTerminals]) {
  process.on(signal, () => {
    if (!(ofTerminals.includes(signal) && process.stdin.isTTY)) child.kill(signal);
  });
}

child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
