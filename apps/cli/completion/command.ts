import { Argument, type Command } from 'commander'
import { exitStatus } from '../terminal/cliError.ts'
import { describeProgram } from './describe.ts'
import { renderCompletion, shells } from './render.ts'

/** Adds `completion <shell>`, which prints a script that completes commands and flags. */
export function addCompletionCommand(program: Command): void {
  program
    .command('completion')
    .summary('print a completion script for bash, fish or zsh')
    .description(
      `Prints a completion script for a shell, made from the commands of this version. Load it where your shell starts: in ~/.bashrc or
~/.zshrc as below; for fish, write it to ~/.config/fish/completions/tollkeeper.fish.`,
    )
    .addArgument(new Argument('<shell>', 'your shell').choices(shells))
    .addHelpText(
      'after',
      `
Example:
  $ source <(tollkeeper completion bash)
  $ source <(tollkeeper completion zsh)
  $ tollkeeper completion fish > ~/.config/fish/completions/tollkeeper.fish`,
    )
    .action((shell: (typeof shells)[number]) => {
      process.stdout.write(renderCompletion(shell, describeProgram(program)))
      process.exitCode = exitStatus.ok
    })
}
