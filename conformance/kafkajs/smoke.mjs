// smoke.mjs FOLDER HOST:PORT: kafkajs, installed in FOLDER/node_modules, against a broker: admin, produce, groups,
// transactions, offsets. A line per check, `PASS NAME | SECONDS NOTE`; the checks build on each other.
import { createRequire } from 'node:module'
import process from 'node:process'

const [folder, broker] = process.argv.slice(2)
const { Kafka, CompressionTypes, logLevel } = createRequire(`${folder}/`)('kafkajs')
const CHECK_MS = 60_000
const WAIT_MS = 45_000
const id = Math.random().toString(36).slice(2, 8)
const topic = `kafkajs-${id}`
const group = `g-${topic}`
const PARTITIONS = 4
const SENT = 32
let bad = 0

async function check (name, body) {
  const began = Date.now()
  let timer
  const late = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${CHECK_MS} ms`)), CHECK_MS)
  })
  let outcome = 'PASS'
  let note
  try {
    note = await Promise.race([body(), late])
  } catch (error) {
    bad++
    outcome = 'FAIL'
    note = [error, ...(error?.errors ?? [])].map(each => each?.message ?? each).join(', ')
  }
  clearTimeout(timer)
  console.log(`${outcome} ${name} | ${((Date.now() - began) / 1000).toFixed(2)} ${note ?? ''}`)
}

function equal (got, want, what) {
  const [left, right] = [got, want].map(each => JSON.stringify(each))
  if (left !== right) throw new Error(`${what}: got ${left}, want ${right}`)
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

async function until (what, condition) {
  const end = Date.now() + WAIT_MS
  while (!condition()) {
    if (Date.now() > end) throw new Error(`waited ${WAIT_MS} ms for ${what}`)
    await sleep(50)
  }
}

const kafka = new Kafka({ clientId: 'conformance', brokers: [broker], logLevel: logLevel.NOTHING })
const admin = kafka.admin()
const producer = kafka.producer({ allowAutoTopicCreation: false })

async function consume (groupId, count) {
  const consumer = kafka.consumer({ groupId })
  const seen = []
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  try {
    await consumer.run({ eachMessage: async ({ message }) => { seen.push(message) } })
    await until(`${count} messages`, () => seen.length >= count)
    await sleep(300)
  } finally {
    await consumer.disconnect()
  }
  return seen
}

async function topics () {
  await check('admin connect', () => admin.connect())
  await check('createTopics', async () => {
    const made = await admin.createTopics({ topics: [{ topic, numPartitions: 3, replicationFactor: 1 }] })
    equal(made, true, 'created')
  })
  await check('createTopics again', async () => {
    equal(await admin.createTopics({ topics: [{ topic, numPartitions: 3 }] }), false, 'created')
  })
  await check('listTopics', async () => equal((await admin.listTopics()).includes(topic), true, 'listed'))
  await check('fetchTopicMetadata', async () => {
    equal((await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length, 3, 'partitions')
  })
  await check('describeCluster', async () => {
    equal((await admin.describeCluster()).brokers.length, 1, 'brokers')
  })
  await check('describeConfigs, alterConfigs', async () => {
    const entries = [{ name: 'retention.ms', value: '7200000' }]
    await admin.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: topic, configEntries: entries }] })
    const asked = [{ type: 2, name: topic, configNames: ['retention.ms'] }]
    const answer = await admin.describeConfigs({ includeSynonyms: false, resources: asked })
    equal(answer.resources[0].configEntries[0].configValue, '7200000', 'retention.ms')
  })
  await check('createPartitions', async () => {
    await admin.createPartitions({ topicPartitions: [{ topic, count: PARTITIONS }] })
    const { topics: [described] } = await admin.fetchTopicMetadata({ topics: [topic] })
    equal(described.partitions.length, PARTITIONS, 'partitions')
  })
}

async function produceAndConsume () {
  await check('producer connect', () => producer.connect())
  await check('send 30 with key, headers', async () => {
    const record = (_none, i) => ({ key: `k${i}`, value: `v${i}`, headers: { h: `${i}` } })
    await producer.send({ topic, messages: Array.from({ length: SENT - 2 }, record) })
  })
  await check('send gzip', () => producer.send({
    topic, compression: CompressionTypes.GZIP, messages: [{ key: 'gz', value: 'x'.repeat(5000) }]
  }))
  await check('send tombstone, partition 0', () => producer.send({
    topic, messages: [{ key: 'gone', value: null, partition: 0 }]
  }))
  await check('group consume', async () => {
    const seen = await consume(group, SENT)
    equal(seen.length, SENT, 'messages')
    const one = seen.find(message => message.key.toString() === 'k7')
    equal([one.value.toString(), one.headers.h.toString()], ['v7', '7'], 'k7')
  })
  await check('listGroups, describeGroups', async () => {
    equal((await admin.listGroups()).groups.some(each => each.groupId === group), true, 'listed')
    equal((await admin.describeGroups([group])).groups[0].state, 'Empty', 'state')
  })
  await check('fetchOffsets', async () => {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    equal(partitions.reduce((sum, each) => sum + Math.max(0, Number(each.offset)), 0), SENT, 'sum of offsets')
  })
}

async function transactions () {
  await check('transaction: commit, abort, send offsets', async () => {
    const client = kafka.producer({ transactionalId: `tx-${topic}`, maxInFlightRequests: 1, idempotent: true })
    const offsets = [{ topic, partitions: [{ partition: 0, offset: '3' }] }]
    await client.connect()
    const first = await client.transaction()
    await first.send({ topic, messages: [{ key: 'c', value: 'committed' }] })
    await first.sendOffsets({ consumerGroupId: `txg-${topic}`, topics: offsets })
    await first.commit()
    const second = await client.transaction()
    await second.send({ topic, messages: [{ key: 'a', value: 'aborted' }] })
    await second.abort()
    await client.disconnect()
    const [{ partitions }] = await admin.fetchOffsets({ groupId: `txg-${topic}`, topics: [topic] })
    equal(partitions.find(each => each.partition === 0).offset, '3', 'offset of the transaction')
  })
  await check('read committed sees no aborted', async () => {
    const seen = await consume(`rc-${topic}`, SENT + 1)
    const values = seen.map(message => message.value?.toString())
    equal(values.filter(value => value === 'committed' || value === 'aborted'), ['committed'], 'transactional values')
  })
}

async function offsets () {
  await check('fetchTopicOffsets', async () => {
    equal((await admin.fetchTopicOffsets(topic)).length, PARTITIONS, 'partitions')
  })
  await check('setOffsets, resetOffsets', async () => {
    await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: '1' }] })
    await admin.resetOffsets({ groupId: group, topic, earliest: true })
  })
  await check('deleteTopicRecords', async () => {
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '1' }] })
    const first = (await admin.fetchTopicOffsets(topic)).find(each => each.partition === 0)
    equal(first.low, '1', 'low')
  })
}

async function rebalance () {
  await check('two consumers rebalance, regex', async () => {
    const make = () => kafka.consumer({ groupId: `rb-${topic}`, rebalanceTimeout: 8000, sessionTimeout: 8000 })
    const consumers = [make(), make()]
    const joins = []
    for (const each of consumers) {
      each.on(each.events.GROUP_JOIN, event => joins.push(Object.values(event.payload.memberAssignment).flat().length))
      await each.connect()
      await each.subscribe({ topics: [new RegExp(`^${topic}$`)], fromBeginning: true })
      await each.run({ eachMessage: async () => {} })
    }
    await until('an even split', () => joins.slice(-2).join() === '2,2')
    for (const each of consumers) await each.disconnect()
  })
}

async function removal () {
  await producer.disconnect()
  await check('deleteGroups', () => admin.deleteGroups([group]))
  await check('deleteTopics', async () => {
    await admin.deleteTopics({ topics: [topic] })
    await sleep(200)
    equal((await admin.listTopics()).includes(topic), false, 'listed')
  })
  await admin.disconnect()
}

for (const part of [topics, produceAndConsume, transactions, offsets, rebalance, removal]) await part()
process.exit(bad ? 1 : 0)
