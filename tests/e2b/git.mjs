// Repositories inside, by the SDK's git helpers: each of them runs git as a command.
import { Sandbox } from 'e2b'
import { assert, rejects, sandbox, scenario } from './scenario.mjs'

const author = { authorName: 'A Writer', authorEmail: 'writer@example.org' }

async function repository(s) {
  await s.git.init('work', { initialBranch: 'main' })
  await s.files.write('work/a', 'one\n')
  await s.git.add('work')
  await s.git.commit('work', 'first', author)
}

scenario('a repository is made, changed and put back', async t => {
  const s = await sandbox(t, Sandbox)
  await s.git.init('work', { initialBranch: 'main' })
  await s.files.write('work/a', 'one\n')
  assert.deepEqual((await s.git.status('work')).fileStatus.map(f => [f.name, f.status]), [['a', 'untracked']])
  await s.git.add('work', { files: ['a'] })
  assert.equal((await s.git.status('work')).hasStaged, true)
  await s.git.commit('work', 'first', author)
  assert.equal((await s.commands.run('git log --format="%s by %an"', { cwd: 'work' })).stdout, 'first by A Writer\n')
  await s.files.write('work/a', 'two\n')
  await s.git.restore('work', { paths: ['a'] })
  assert.equal(await s.files.read('work/a'), 'one\n')
  await s.files.write('work/a', 'three\n')
  await s.git.reset('work', { mode: 'hard', target: 'HEAD' })
  assert.equal((await s.git.status('work')).isClean, true)
})

scenario('branches', async t => {
  const s = await sandbox(t, Sandbox)
  await repository(s)
  await s.git.createBranch('work', 'side')
  assert.deepEqual(await s.git.branches('work'), { branches: ['main', 'side'], currentBranch: 'side' })
  await s.git.checkoutBranch('work', 'main')
  await s.git.deleteBranch('work', 'side', { force: true })
  assert.deepEqual((await s.git.branches('work')).branches, ['main'])
})

scenario('another repository, over the network inside', async t => {
  const s = await sandbox(t, Sandbox)
  await repository(s)
  await s.commands.run('git init -q --bare --initial-branch=main far.git')
  const server = await s.commands.run('exec $(git --exec-path)/git-daemon --base-path=/home/user --export-all --enable=receive-pack --listen=127.0.0.1 --port=9418', { background: true })
  await s.commands.run('for i in $(seq 100); do git ls-remote git://127.0.0.1/far.git && exit 0; sleep 0.1; done; exit 1')
  assert.equal(await s.git.remoteGet('work', 'origin'), undefined)
  await s.git.remoteAdd('work', 'origin', 'git://127.0.0.1/far.git')
  assert.equal(await s.git.remoteGet('work', 'origin'), 'git://127.0.0.1/far.git')
  await rejects(s.git.push('work', { setUpstream: false }), 'GitUpstreamError')
  await s.git.push('work', { remote: 'origin', branch: 'main', setUpstream: true })
  await s.git.clone('git://127.0.0.1/far.git', { path: 'copy' })
  await s.files.write('work/a', 'more\n')
  await s.git.add('work')
  await s.git.commit('work', 'second', author)
  await s.git.push('work')
  await s.git.pull('copy')
  assert.equal(await s.files.read('copy/a'), 'more\n')
  await server.kill()
  await rejects(s.git.clone('git://127.0.0.1/far.git', { path: 'third' }), 'CommandExitError')
})

scenario('who writes, and with which password', async t => {
  const s = await sandbox(t, Sandbox)
  await s.git.configureUser('A Writer', 'writer@example.org')
  assert.equal(await s.git.getConfig('user.name', { scope: 'global' }), 'A Writer')
  await repository(s)
  await s.git.setConfig('pull.rebase', 'true', { scope: 'local', path: 'work' })
  assert.equal(await s.git.getConfig('pull.rebase', { scope: 'local', path: 'work' }), 'true')
  assert.equal(await s.git.getConfig('no.such', { scope: 'global' }), undefined)
  await s.git.dangerouslyAuthenticate({ username: 'w', password: 'p', host: 'example.org', protocol: 'https' })
  assert.equal(await s.files.read('.git-credentials'), 'https://w:p@example.org\n')
})
