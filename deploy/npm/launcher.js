#!/usr/bin/env node
// Starts the raincheck program of this system, and ends as it ends. A package of its own brings the program: npm installs
// the one of `optionalDependencies` whose `os` and `cpu` are those of this machine.
'use strict';

const { spawn } = require('node:child_process');
const { isatty } = require('node:tty');
const { optionalDependencies } = require('./package.json');

function fail(text) {
  console.error(`error: ${text}`);
  process.exit(1);
}

function program() {
  const system = `${process.platform}-${process.arch}`;
  const name = `raincheck-${system}`;
  if (!Object.hasOwn(optionalDependencies, name)) {
    const all = Object.keys(optionalDependencies).map((other) => other.slice('raincheck-'.length));
    fail(`raincheck has no program for ${system}: there is one for ${all.join(', ')}`);
  }
  try {
    return require.resolve(`${name}/bin/raincheck${process.platform === 'win32' ? '.exe' : ''}`);
  } catch {
    fail(`the package ${name}, which has the program for ${system}, is not installed: install again without --omit=optional`);
  }
}

// A terminal sends these to every process in front of it, so there the program has them already: a second SIGINT would say
// that it shall stop at once. So does a console of Windows, where a signal that Node sends ends the program without a drain.
// (A look at `process.stdin` would change how the program reads it.)
const ofTerminals = ['SIGINT', 'SIGHUP', 'SIGBREAK'];
const hasThem = process.platform === 'win32' || isatty(0);
for (const signal of ['SIGTERM', ...ofTerminals]) {
  process.on(signal, () => {
    if (!(ofTerminals.includes(signal) && hasThem)) child.kill(signal);
  });
}

// Started when signals are passed on: none that comes now ends the launcher alone.
const child = spawn(program(), process.argv.slice(2), { stdio: 'inherit' });
child.on('error', (error) => fail(`${child.spawnfile} cannot be run: ${error.message}`));

child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
