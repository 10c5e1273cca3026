// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ITabSettlement} from "../../interfaces/ITabSettlement.sol";
import {SplitterTest} from "./SplitterTest.sol";
import {Vm} from "./Vm.sol";

/// @notice The real USDC, a TabSettlement, and payers who sign what they owe to several providers.
abstract contract TabTest is SplitterTest {
    struct Line {
        /// Position in `splits`.
        uint256 split;
        uint256 amount;
    }

    /// A tab before it is signed and packed. `from` is the account of `key`, unless set to a contract's address.
    struct Bill {
        uint256 key;
        address from;
        bytes32 nonce;
        uint256 sequence;
        uint256 expiry;
        Line[] lines;
    }

    /// The fields of a commitment other than the terms and the lines.
    struct Owner {
        bytes32 nonce;
        address from;
        uint256 chainId;
    }

    /// The arguments of `settle` after the batch.
    struct Packed {
        uint256[] splits;
        ITabSettlement.Tab[] tabs;
        bytes lines;
        bytes[] signatures;
    }

    bytes32 private constant RECEIVE_TYPEHASH = keccak256(
        "ReceiveWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
    );

    uint16 internal constant REWARD = 1_000;
    address internal constant OTHER = address(0xCAFE);
    address internal constant KEEPER = address(0x6EE9);

    ITabSettlement internal tabSettlement;
    /// Code of TabReference, the same contract without assembly.
    bytes private _reference;
    uint256[] internal splits;

    function setUp() public virtual override {
        super.setUp();
        tabSettlement = ITabSettlement(_deploy("TabSettlement", abi.encode(factory)));
        _reference = _deploy("test/mocks/", "TabReference", abi.encode(factory)).code;
        splits.push(_split(PROVIDER, 19, 1));
        splits.push(_split(OTHER, 9, 1));
        vm.label(OTHER, "other provider");
        vm.label(KEEPER, "keeper");
        usdc.mint(OTHER, 1);
        usdc.mint(KEEPER, 1);
    }

    // Tabs and their signatures.

    /// Returns a good tab of 0.05 USDC by payer `index`: 0.04 to one provider, 0.01 to the other.
    function _bill(uint256 index) internal pure returns (Bill memory bill) {
        bill.key = _key(index);
        bill.from = _buyer(index);
        bill.nonce = keccak256(abi.encode("tab", index));
        bill.sequence = 7;
        bill.expiry = NOW + 1 hours;
        bill.lines = new Line[](2);
        bill.lines[0] = Line(0, 40_000);
        bill.lines[1] = Line(1, 10_000);
    }

    /// The parts of that tab that the two providers and the platform get.
    uint256 internal constant TO_PROVIDER = 38_000;
    uint256 internal constant TO_OTHER = 9_000;
    uint256 internal constant TO_PLATFORM = 3_000;

    function _value(Bill memory bill) internal pure returns (uint256 value) {
        for (uint256 i; i < bill.lines.length; ++i) value += bill.lines[i].amount;
    }

    function _validBefore(Bill memory bill, ITabSettlement.Batch memory batch) internal view returns (uint256) {
        return _validBefore(bill, batch, Owner(bill.nonce, bill.from, block.chainid));
    }

    function _validBefore(Bill memory bill, ITabSettlement.Batch memory batch, Owner memory owner)
        internal
        view
        returns (uint256)
    {
        bytes memory words = abi.encode(
            uint256(uint160(batch.feeRecipient)) << 96 | uint256(batch.rewardShare) << 40 | bill.sequence,
            owner.nonce,
            uint256(uint160(owner.from)) << 96 | owner.chainId
        );
        for (uint256 i; i < bill.lines.length; ++i) {
            words = bytes.concat(words, abi.encode(splits[bill.lines[i].split], bill.lines[i].amount));
        }
        return uint256(keccak256(words)) & ~uint256(type(uint40).max) | bill.expiry;
    }

    function _digest(Bill memory bill, ITabSettlement.Batch memory batch) internal view returns (bytes32) {
        return _digest(bill, _validBefore(bill, batch));
    }

    function _digest(Bill memory bill, uint256 validBefore) internal view returns (bytes32) {
        bytes32 structHash = keccak256(
            abi.encode(
                RECEIVE_TYPEHASH, bill.from, address(tabSettlement), _value(bill), 0, validBefore, bill.nonce
            )
        );
        return keccak256(abi.encodePacked(hex"1901", usdc.DOMAIN_SEPARATOR(), structHash));
    }

    function _signature(Bill memory bill) internal view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(bill.key, _digest(bill, _tabBatch()));
        return abi.encodePacked(r, s, v);
    }

    function _fund(Bill memory bill) internal {
        usdc.mint(bill.from, _value(bill));
    }

    function _cancel(Bill memory bill) internal {
        Terms memory terms;
        (terms.key, terms.from) = (bill.key, bill.from);
        _cancel(terms, bill.nonce);
    }

    // Batches.

    function _tabBatch() internal view returns (ITabSettlement.Batch memory) {
        return ITabSettlement.Batch(address(usdc), PLATFORM, REWARD, BATCH_ID, 1, CALL_GAS, 0, 0, 0);
    }

    function _packTab(Bill memory bill) internal view returns (ITabSettlement.Tab memory tab) {
        tab.head = uint256(uint160(bill.from)) << 96 | bill.lines.length << 80 | bill.sequence << 40 | bill.expiry;
        tab.nonce = bill.nonce;
        (tab.r, tab.vs) = _compact(bill.key, _digest(bill, _tabBatch()));
    }

    function _packLines(Bill memory bill) internal pure returns (bytes memory lines) {
        for (uint256 i; i < bill.lines.length; ++i) {
            Line memory line = bill.lines[i];
            lines = bytes.concat(lines, bytes8(uint64(line.split << 48 | line.amount)));
        }
    }

    function _packTabs(Bill[] memory bills) internal view returns (Packed memory packed) {
        packed.splits = splits;
        packed.tabs = new ITabSettlement.Tab[](bills.length);
        for (uint256 i; i < bills.length; ++i) {
            packed.tabs[i] = _packTab(bills[i]);
            packed.lines = bytes.concat(packed.lines, _packLines(bills[i]));
        }
    }

    /// Returns `count` funded good tabs of different payers, starting with payer `first`.
    function _goodBills(uint256 first, uint256 count) internal returns (Bill[] memory bills) {
        bills = new Bill[](count);
        for (uint256 i; i < count; ++i) {
            bills[i] = _bill(first + i);
            _fund(bills[i]);
        }
    }

    function _only(Bill memory bill) internal pure returns (Bill[] memory bills) {
        bills = new Bill[](1);
        bills[0] = bill;
    }

    function _call(Packed memory packed) internal view returns (bytes memory) {
        return abi.encodeCall(
            tabSettlement.settle, (_tabBatch(), packed.splits, packed.tabs, packed.lines, packed.signatures)
        );
    }

    /// Settles as KEEPER.
    function _settle(ITabSettlement.Batch memory batch, Packed memory packed) internal returns (bytes memory) {
        vm.prank(KEEPER);
        return tabSettlement.settle(batch, packed.splits, packed.tabs, packed.lines, packed.signatures);
    }

    function _settle(Packed memory packed) internal returns (bytes memory) {
        return _settle(_tabBatch(), packed);
    }

    function _settle(Bill[] memory bills) internal returns (bytes memory) {
        return _settle(_packTabs(bills));
    }

    /// Checks that KEEPER's call returns, logs and moves the same if TabReference replaces the contract. Restores the
    /// state afterwards. Comparing the logs also compares the transfers, because the token logs each of them.
    /// @param isWellFormed Whether an encoder produced the calldata. If not, the two may revert for different reasons.
    function _compareWithReference(bytes memory data, bool isWellFormed) internal {
        uint256 state = vm.snapshotState();
        (bool success, bytes memory answer, Vm.Log[] memory logs) = _observe(data);
        vm.revertToState(state);
        state = vm.snapshotState();
        vm.etch(address(tabSettlement), _reference);
        (bool expected, bytes memory expectedAnswer, Vm.Log[] memory expectedLogs) = _observe(data);
        vm.revertToState(state);
        vm.assertEq(success ? 1 : 0, expected ? 1 : 0, "succeeds if the reference does");
        if (success || isWellFormed) vm.assertEq(answer, expectedAnswer, "returns the same as the reference");
        // The recorded logs include those of calls that reverted, which mean nothing.
        if (success) vm.assertEq(abi.encode(logs), abi.encode(expectedLogs), "logs the same as the reference");
    }

    function _observe(bytes memory data) private returns (bool success, bytes memory answer, Vm.Log[] memory logs) {
        vm.recordLogs();
        vm.prank(KEEPER);
        (success, answer) = address(tabSettlement).call(data);
        logs = vm.getRecordedLogs();
    }

    /// Returns the splitter that pays only this account.
    function _refuge(address account) internal view returns (address) {
        return factory.splitterOf(_split(account, 1, 0), account);
    }

    /// Checks what everyone received after `count` good tabs, not counting the one unit that each has from the start.
    function _checkGood(uint256 count, string memory message) internal view {
        _checkBalances(count * TO_PROVIDER, count * TO_OTHER, count * TO_PLATFORM, message);
    }

    function _checkBalances(uint256 provider, uint256 other, uint256 platform, string memory message) internal view {
        uint256 reward = platform * REWARD / 10_000;
        vm.assertEq(usdc.balanceOf(PROVIDER) - 1, provider, string.concat("the provider's balance, ", message));
        vm.assertEq(usdc.balanceOf(OTHER) - 1, other, string.concat("the other provider's balance, ", message));
        vm.assertEq(usdc.balanceOf(KEEPER) - 1, reward, string.concat("the keeper's balance, ", message));
        vm.assertEq(usdc.balanceOf(PLATFORM) - 1, platform - reward, string.concat("the platform's balance, ", message));
        vm.assertEq(usdc.balanceOf(address(tabSettlement)), 0, string.concat("the contract's balance, ", message));
    }
}
