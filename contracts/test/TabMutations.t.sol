// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ITabSettlement} from "../interfaces/ITabSettlement.sol";
import {IFiatToken} from "./support/IFiatToken.sol";
import {TabTest} from "./support/TabTest.sol";

/// @notice If one thing in a batch isn't what the payer signed, only the affected tab is rejected.
contract TabMutationsTest is TabTest {
    /// A valid batch of two tabs. The first tab has three lines.
    Bill[] private _bills;

    function setUp() public override {
        super.setUp();
        for (uint256 i; i < 2; ++i) {
            Bill memory bill = _bill(i);
            if (i == 0) {
                bill.lines = new Line[](3);
                (bill.lines[0], bill.lines[1], bill.lines[2]) = (Line(0, 30_000), Line(1, 10_000), Line(0, 10_000));
            }
            _fund(bill);
            usdc.mint(bill.from, 100_000);
            _bills.push(bill);
        }
    }

    function _pack() private view returns (Packed memory packed) {
        return _packTabs(_bills);
    }

    /// Checks that the first tab is rejected and the second settles.
    function _refused(Packed memory packed, string memory what) private {
        uint256 state = vm.snapshotState();
        vm.assertEq(_settle(packed), hex"3010", what);
        _checkGood(1, what);
        vm.assertTrue(!usdc.authorizationState(_bills[0].from, _bills[0].nonce), what);
        vm.revertToState(state);
    }

    /// Checks that no tab settles, because the batch's own fields affect all tabs.
    function _refusedBatch(ITabSettlement.Batch memory batch, Packed memory packed, string memory what) private {
        (bool success,) = address(tabSettlement).call(
            abi.encodeCall(
                tabSettlement.settle, (batch, packed.splits, packed.tabs, packed.lines, packed.signatures)
            )
        );
        vm.assertTrue(!success, what);
    }

    function test_default_unchanged() public {
        vm.assertEq(_settle(_pack()), hex"1010", "outcomes");
        _checkBalances(2 * TO_PROVIDER, 2 * TO_OTHER, 2 * TO_PLATFORM, "for both");
    }

    /// Flips every bit of a tab except its number of lines, which the next test changes.
    function test_behavior_anyBitOfATab() public {
        Packed memory packed = _pack();
        for (uint256 bit; bit < 256; ++bit) {
            if (bit < 80 || bit >= 96) {
                packed.tabs[0].head ^= 1 << bit;
                // A lower expiry may be in the past.
                if (uint40(packed.tabs[0].head) > NOW) _refused(packed, "head");
                packed.tabs[0].head ^= 1 << bit;
            }
            packed.tabs[0].nonce ^= bytes32(1 << bit);
            _refused(packed, "nonce");
            packed.tabs[0].nonce ^= bytes32(1 << bit);
        }
    }

    function test_behavior_linesShiftedBetweenTabs() public {
        Packed memory packed = _pack();
        packed.tabs[0].head -= 1 << 80;
        packed.tabs[1].head += 1 << 80;
        _expectNothingSettled(hex"3030");
        _settle(packed);
    }

    function test_behavior_anyBitOfAnAmount() public {
        Packed memory packed = _pack();
        for (uint256 bit; bit < 8 * 3 * 8; ++bit) {
            // Skips the bits of the split's index, because another test changes them.
            if (bit % 64 < 16) continue;
            bytes1 mask = bytes1(uint8(1 << 7 - bit % 8));
            packed.lines[bit / 8] ^= mask;
            _refused(packed, "amount");
            packed.lines[bit / 8] ^= mask;
        }
    }

    function test_behavior_anotherProvidersLine() public {
        Packed memory packed = _pack();
        for (uint256 line; line < 3; ++line) {
            packed.lines[8 * line + 1] ^= 0x01;
            _refused(packed, "index");
            packed.lines[8 * line + 1] ^= 0x01;
        }
    }

    /// The second tab uses other splits, so it isn't affected.
    function test_behavior_anyBitOfASplit() public {
        splits.push(splits[0]);
        splits.push(splits[1]);
        (_bills[1].lines[0].split, _bills[1].lines[1].split) = (2, 3);
        Packed memory packed = _pack();
        for (uint256 bit; bit < 256; ++bit) {
            packed.splits[0] ^= 1 << bit;
            _refused(packed, "split");
            packed.splits[0] ^= 1 << bit;
        }
    }

    function test_behavior_linesPermuted() public {
        Packed memory packed = _pack();
        for (uint256 i; i < 2; ++i) {
            _swap(packed.lines, 8 * i, 8 * (i + 1));
            _refused(packed, "permuted");
            _swap(packed.lines, 8 * i, 8 * (i + 1));
        }
    }

    /// Both tabs have the same sum.
    function test_behavior_linesOfTwoTabsSwapped() public {
        _bills[1].lines = new Line[](3);
        for (uint256 i; i < 3; ++i) _bills[1].lines[i] = Line(1 - _bills[0].lines[i].split, _bills[0].lines[i].amount);
        Packed memory packed = _pack();
        for (uint256 i; i < 3; ++i) _swap(packed.lines, 8 * i, 8 * (3 + i));
        _expectNothingSettled(hex"3030");
        _settle(packed);
    }

    function _swap(bytes memory lines, uint256 a, uint256 b) private pure {
        for (uint256 i; i < 8; ++i) (lines[a + i], lines[b + i]) = (lines[b + i], lines[a + i]);
    }

    /// Merges two lines into one line with their sum. Then, separately, adds an empty line after a tab's lines.
    function test_behavior_linesMerged() public {
        Packed memory packed = _pack();
        packed.tabs[0].head -= 1 << 80;
        packed.lines = bytes.concat(
            abi.encodePacked(uint16(0), uint48(40_000), uint16(1), uint48(10_000)), _packLines(_bills[1])
        );
        _refused(packed, "merged");
        packed = _pack();
        packed.tabs[0].head += 1 << 80;
        packed.lines = bytes.concat(_packLines(_bills[0]), bytes8(0), _packLines(_bills[1]));
        _refused(packed, "with an empty line");
    }

    function test_behavior_anotherBatch() public {
        Packed memory packed = _pack();
        ITabSettlement.Batch memory batch = _tabBatch();
        batch.feeRecipient = KEEPER;
        _refusedBatch(batch, packed, "another platform");
        batch = _tabBatch();
        batch.rewardShare += 1;
        _refusedBatch(batch, packed, "another reward");
        batch = _tabBatch();
        batch.rewardShare = 0;
        _refusedBatch(batch, packed, "no reward");
        batch = _tabBatch();
        batch.token = address(_deployUsdc("Another"));
        IFiatToken(batch.token).mint(_bills[0].from, 100_000);
        _refusedBatch(batch, packed, "another token");
        vm.chainId(1);
        _refusedBatch(_tabBatch(), packed, "another chain");
    }

    /// Signs a commitment that belongs to another tab, payer or chain. The contract rejects it, so lines whose hash
    /// collides can't be used for any other tab, payer or chain.
    function test_behavior_commitmentOfAnother() public {
        Bill memory bill = _bills[0];
        Owner[4] memory owners = [
            Owner(bill.nonce, bill.from, block.chainid),
            Owner(_bills[1].nonce, bill.from, block.chainid),
            Owner(bill.nonce, _bills[1].from, block.chainid),
            Owner(bill.nonce, bill.from, block.chainid + 1)
        ];
        string[4] memory names = ["its own", "another tab's", "another payer's", "another chain's"];
        for (uint256 i; i < 4; ++i) {
            Packed memory packed = _pack();
            uint256 validBefore = _validBefore(bill, _tabBatch(), owners[i]);
            (packed.tabs[0].r, packed.tabs[0].vs) = _compact(bill.key, _digest(bill, validBefore));
            if (i > 0) {
                _refused(packed, names[i]);
                continue;
            }
            uint256 state = vm.snapshotState();
            vm.assertEq(_settle(packed), hex"1010", names[i]);
            vm.revertToState(state);
        }
    }

    function test_behavior_anotherTabSettlement() public {
        Packed memory packed = _pack();
        ITabSettlement first = tabSettlement;
        tabSettlement = ITabSettlement(_deploy("TabSettlement", abi.encode(factory)));
        _expectNothingSettled(hex"3030");
        _settle(packed);
        tabSettlement = first;
        vm.assertEq(_settle(packed), hex"1010", "outcomes");
    }

    /// Someone who knows a state can't submit it to the token directly, through any of the token's functions.
    function test_behavior_straightToTheToken() public {
        Bill memory bill = _bills[0];
        bytes memory signature = _signature(bill);
        uint256 validBefore = _validBefore(bill, _tabBatch());
        vm.prank(PROVIDER);
        vm.expectRevert(abi.encodeWithSignature("Error(string)", "FiatTokenV2: caller must be the payee"));
        usdc.receiveWithAuthorization(
            bill.from, address(tabSettlement), _value(bill), 0, validBefore, bill.nonce, signature
        );
        vm.expectRevert(abi.encodeWithSignature("Error(string)", "FiatTokenV2: invalid signature"));
        usdc.transferWithAuthorization(
            bill.from, address(tabSettlement), _value(bill), 0, validBefore, bill.nonce, signature
        );
        vm.assertEq(_settle(_pack()), hex"1010", "outcomes");
    }

    /// The malleated signature, which recovers to the same payer.
    function test_behavior_malleatedSignature() public {
        uint256 order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;
        Packed memory packed = _pack();
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(_bills[0].key, _digest(_bills[0], _tabBatch()));
        packed.signatures = new bytes[](1);
        packed.signatures[0] = abi.encodePacked(r, order - uint256(s), 55 - v);
        (packed.tabs[0].r, packed.tabs[0].vs) = (0, 0);
        _refused(packed, "malleated");
    }
}
